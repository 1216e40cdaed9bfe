"""Submit an experiment to a SuperLink, or start a whole federation on this machine."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sparsona.data import absolute
from sparsona.data.dataset import Federation
from sparsona.engines.network.flower.processes import (
    COMPLETED,
    Child,
    Flwr,
    command_of,
    free_port,
    stop_all,
    write_bundle,
)
from sparsona.engines.network.flower.server import Server
from sparsona.engines.network.keys import CA, make_certificates, make_node_key
from sparsona.engines.network.own_data import SHARE, own_file, write_share
from sparsona.errors import InputError, RunError
from sparsona.experiment import Experiment, to_toml
from sparsona.files import write_atomically, write_new
from sparsona.method import ClientId
from sparsona.runs.names import file_stem

LOCALHOST = "127.0.0.1"
ORGANISER = "organiser"
SPARSONA = Path(__file__).parents[2] / "__main__.py"


def submit(
    experiment: Experiment,
    superlink: str,
    ca: Path,
    name: str,
    patience: float,
    say: Callable[[str], None],
    fewest: int = 0,
) -> None:
    """Run an experiment on a SuperLink and pass its log on; raise `RunError` if the run did not complete."""
    with tempfile.TemporaryDirectory(prefix="sparsona-") as scratch:
        app = write_bundle(Path(scratch) / "app", to_toml(experiment), name, patience, fewest)
        status = Flwr(Path(scratch), superlink, ca).run(app, say)
    if COMPLETED not in status:
        raise RunError(f"the run ended as {status}: the lines above say why")


@dataclass
class LocalNodes(ABC):
    """A federation on this machine, in one folder. Every node is a process with its own folder and its own data."""

    folder: Path
    clients: Sequence[ClientId]
    options: Sequence[str] = ()
    script: Path = SPARSONA  # the script that is started as the command `sparsona`
    nodes: dict[ClientId, Child] = field(init=False, default_factory=dict)

    def start(self) -> None:
        """Make a key per node, and start the server and the nodes."""
        public = self.folder / "public-keys"
        public.mkdir()
        for client in self.clients:
            key = make_node_key(self.place(client) / "key", client)
            os.link(f"{key}.pub", public / f"{key.name}.pub")
        self.start_server()
        for client in self.clients:
            self.start_node(client)

    @abstractmethod
    def start_server(self) -> None:
        """Start or prepare the server, before any node starts."""

    @abstractmethod
    def line(self, client: ClientId) -> list[str]:
        """Return the options by which a node reaches the server."""

    @abstractmethod
    def run(self, experiment: Experiment, name: str = "run", say: Callable[[str], None] = print) -> Path:
        """Run an experiment; return its run directory."""

    def place(self, client: ClientId) -> Path:
        """Return a node's own folder."""
        return self.folder / file_stem(client)

    def start_node(self, client: ClientId, script: Path | None = None) -> None:
        """Start or restart a client's node; `script` replaces the command for this node only."""
        place = self.place(client)
        arguments = ["node", "--name", client, *self.line(client)]
        arguments += ["--data", str(place / "data"), "--state", str(place / "state")]
        arguments += ["--key", str(place / "key" / file_stem(client)), *self.options]
        self.nodes[client] = Child(script or self.script, arguments, place / "output.log")

    def close(self) -> None:
        """Stop all processes."""
        stop_all(self.nodes.values())


@dataclass
class LoopbackFederation(LocalNodes):
    """A SuperLink with TLS on loopback, and its nodes."""

    server: Server = field(init=False)
    port: int = field(init=False, default=0)

    def start_server(self) -> None:
        certificates = self.folder / "certificates"
        if not self.port:
            make_certificates(certificates, [LOCALHOST])
            self.port = free_port()
        self.server = Server(self.folder / "server", LOCALHOST, self.port, certificates, self.folder / "public-keys")

    def line(self, client: ClientId) -> list[str]:
        return ["--superlink", self.address, "--ca", str(self.ca)]

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "certificates" / CA

    def run(self, experiment: Experiment, name: str = "run", say: Callable[[str], None] = print) -> Path:
        submit(experiment, self.address, self.ca, name, 300.0, say)
        return self.server.home / "runs" / file_stem(name)

    def close(self) -> None:
        super().close()
        if hasattr(self, "server"):
            self.server.close()


@dataclass
class MailboxFederation(LocalNodes):
    """Nodes that meet in a mailbox, and a server process per run."""

    mailbox: str = ""
    idle: float = 1.0
    server: subprocess.Popen[str] | None = field(init=False, default=None)

    def start_server(self) -> None:
        make_node_key(self.folder / "organiser", ORGANISER)

    def line(self, client: ClientId) -> list[str]:
        public = self.folder / "organiser" / f"{ORGANISER}.pub"
        return ["--mailbox", self.mailbox, "--server-key", str(public), "--idle", str(self.idle)]

    def run(self, experiment: Experiment, name: str = "run", say: Callable[[str], None] = print) -> Path:
        home, file = self.folder / "server", self.folder / "submitted.toml"
        write_atomically(file, to_toml(experiment))
        arguments = ["server", "--mailbox", self.mailbox, "--key", str(self.folder / "organiser" / ORGANISER)]
        arguments += ["--keys", str(self.folder / "public-keys"), "--home", str(home), "--idle", str(self.idle)]
        arguments += ["--experiment", str(file), "--name", name]
        last, pipe = "", subprocess.PIPE
        with subprocess.Popen(
            command_of(self.script, arguments), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
        ) as self.server:
            assert self.server.stdout is not None
            try:
                for last in map(str.rstrip, self.server.stdout):
                    say(last)
            finally:
                self.server.terminate()
        if self.server.returncode:
            raise RunError(f"sparsona server ended with {self.server.returncode}: {last}")
        return home / "runs" / file_stem(name)


L = TypeVar("L", bound=LocalNodes)


@contextlib.contextmanager
def local_federation(local: L, federation: Federation, experiment: Experiment) -> Iterator[L]:
    """Start a federation with the data that a simulation would give its clients; stop it when the block ends.

    The nodes know the experiment's seed and answer as in the simulation, because the caller owns all data.
    """
    folder = local.folder
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: choose another folder")
    agreed = folder / "agreed.toml"
    as_simulated = ["--experiment", str(agreed), "--seed", str(experiment.seed)]
    as_simulated += ["--least-rows", str(experiment.least_rows)]
    local.options = [*as_simulated, *local.options]
    name, _, path = absolute(experiment.data, Path.cwd()).partition(":")
    for client in local.clients:
        own = local.place(client) / "data"
        own.mkdir(parents=True)
        if name == "folder":
            shutil.copy(own_file(Path(path), client), own)
        elif federation.data.rows is None:
            write_share(own / f"{file_stem(client)}{SHARE}", federation, client)
        else:
            raise InputError(f"the table {name} is one file: give a folder of files, one a client (folder:PATH)")
    write_new(agreed, to_toml(experiment).encode())
    try:
        local.start()
        yield local
    finally:
        local.close()
