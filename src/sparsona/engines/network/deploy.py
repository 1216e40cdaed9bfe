"""Submitting an experiment to a SuperLink, and a whole federation on loopback."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparsona.data import absolute
from sparsona.data.dataset import Federation
from sparsona.engines.network.flower.bundle import write_bundle
from sparsona.engines.network.flower.processes import COMPLETED, Child, Flwr, free_port, stop_all
from sparsona.engines.network.flower.server import Server
from sparsona.engines.network.keys import CA, make_certificates, make_node_key
from sparsona.engines.network.owned import SHARE, copy_file, own_file, write_share
from sparsona.errors import InputError, RunError
from sparsona.experiment import Experiment, to_toml
from sparsona.files import write_new
from sparsona.method import ClientId
from sparsona.runs.names import file_stem

LOCALHOST = "127.0.0.1"
SPARSONA = Path(__file__).parents[2] / "__main__.py"


def submit(
    experiment: Experiment, superlink: str, ca: Path, name: str, patience: float, say: Callable[[str], None]
) -> None:
    """Run an experiment on a SuperLink and pass its log on; an error where the run did not end well."""
    with tempfile.TemporaryDirectory(prefix="sparsona-") as scratch:
        app = write_bundle(Path(scratch) / "app", to_toml(experiment), name, patience)
        status = Flwr(Path(scratch), superlink, ca).run(app, say)
    if COMPLETED not in status:
        raise RunError(f"the run ended as {status}: the lines above say why")


@dataclass
class LoopbackFederation:
    """A federation on loopback: a SuperLink with TLS, a node a client with a key of its own, in one folder.

    Every node is a process with its own folder, which holds its data and nobody else's.
    """

    folder: Path
    clients: Sequence[ClientId]
    options: Sequence[str] = ()
    server: Server = field(init=False)
    nodes: dict[ClientId, Child] = field(init=False, default_factory=dict)
    port: int = field(init=False, default=0)

    def start(self) -> LoopbackFederation:
        make_certificates(self.folder / "certificates", [LOCALHOST])
        public = self.folder / "public-keys"
        public.mkdir()
        for client in self.clients:
            key = make_node_key(self.place(client) / "key", client)
            os.link(f"{key}.pub", public / f"{key.name}.pub")
        self.port = free_port()
        self.start_server()
        for client in self.clients:
            self.start_node(client)
        return self

    def start_server(self) -> None:
        certificates = self.folder / "certificates"
        self.server = Server(self.folder / "server", LOCALHOST, self.port, certificates, self.folder / "public-keys")

    def place(self, client: ClientId) -> Path:
        """A node's own folder."""
        return self.folder / file_stem(client)

    def start_node(self, client: ClientId, script: Path = SPARSONA) -> None:
        """Start a client's node, or start it again; `script` is called like the command `sparsona`."""
        place = self.place(client)
        arguments = ["node", "--superlink", self.address, "--name", client, "--ca", str(self.ca)]
        arguments += ["--data", str(place / "data"), "--state", str(place / "state")]
        arguments += ["--key", str(place / "key" / file_stem(client)), *self.options]
        self.nodes[client] = Child(script, arguments, place / "output.log")

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "certificates" / CA

    def run(self, experiment: Experiment, name: str = "run", say: Callable[[str], None] = print) -> Path:
        """Run an experiment; returns its run directory."""
        submit(experiment, self.address, self.ca, name, 300.0, say)
        return self.server.home / "runs" / file_stem(name)

    def close(self) -> None:
        stop_all(self.nodes.values())
        if hasattr(self, "server"):
            self.server.close()


@contextlib.contextmanager
def local_federation(
    folder: Path, federation: Federation, experiment: Experiment, options: Sequence[str] = ()
) -> Iterator[LoopbackFederation]:
    """A federation on loopback whose clients have the data that a simulation would deal out to them.

    The nodes know the experiment's seed and answer as the simulation does: the data are the caller's own.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: choose another folder")
    clients = sorted(federation.clients)
    agreed = folder / "agreed.toml"
    as_simulated = ["--experiment", str(agreed), "--seed", str(experiment.seed)]
    as_simulated += ["--least-rows", str(experiment.least_rows)]
    local = LoopbackFederation(folder, clients, options=[*as_simulated, *options])
    name, _, path = absolute(experiment.data, Path.cwd()).partition(":")
    for client in clients:
        own = local.place(client) / "data"
        own.mkdir(parents=True)
        if name == "folder":
            copy_file(own_file(Path(path), client), own)
        elif federation.data.rows is None:
            write_share(own / f"{file_stem(client)}{SHARE}", federation, client)
        else:
            raise InputError(f"the table {name} is one file: give a folder of files, one a client (folder:PATH)")
    write_new(agreed, to_toml(experiment).encode())
    try:
        yield local.start()
    finally:
        local.close()
