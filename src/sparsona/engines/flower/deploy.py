"""Submitting an experiment to a SuperLink, and a whole federation on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparsona.data import absolute
from sparsona.data.dataset import Federation
from sparsona.engines.flower.bundle import write_bundle
from sparsona.engines.flower.keys import CA, make_certificates, make_node_key
from sparsona.engines.flower.owned import SHARE, copy_file, own_file, write_share
from sparsona.engines.flower.processes import Flwr, free_port
from sparsona.engines.flower.server import Server
from sparsona.errors import InputError, RunError
from sparsona.experiment import Experiment, to_toml
from sparsona.method import ClientId
from sparsona.runs.names import file_stem

LOCALHOST = "127.0.0.1"


def submit(
    experiment: Experiment, superlink: str, ca: Path, name: str, patience: float, say: Callable[[str], None]
) -> None:
    """Run an experiment on a SuperLink and pass its log on; an error where the run did not end well."""
    with tempfile.TemporaryDirectory(prefix="sparsona-") as scratch:
        flwr = Flwr(Path(scratch), superlink, ca)
        app = write_bundle(Path(scratch) / "app", to_toml(experiment), name, patience)
        process = flwr.run(app)
        last = ""
        assert process.stdout is not None
        for line in process.stdout:
            last = line.rstrip() or last
            say(line.rstrip())
        if process.wait():
            raise RunError(f"the submission failed: {last}")
        runs = flwr.runs()
        status = str(runs[0].get("status", "")) if runs else "unknown"
        if "completed" not in status:
            raise RunError(f"the run ended as {status}: the lines above say why")


@dataclass
class Local:
    """A federation on loopback: a SuperLink with TLS, a node a client with a key of its own, in one folder.

    Every node is a process with its own folder, which holds its data and nobody else's.
    """

    folder: Path
    clients: Sequence[ClientId]
    idle: float = 0.3
    options: Sequence[str] = ()
    server: Server = field(init=False)
    nodes: dict[ClientId, subprocess.Popen[bytes]] = field(init=False, default_factory=dict)
    port: int = field(init=False, default=0)

    def start(self) -> Local:
        make_certificates(self.folder / "certificates", ["localhost", LOCALHOST])
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

    def start_node(self, client: ClientId, *options: str) -> None:
        place = self.place(client)
        command = [sys.executable, "-m", "sparsona", "node", "--superlink", self.address, "--name", client]
        command += ["--data", str(place / "data"), "--state", str(place / "state"), "--ca", str(self.ca)]
        command += ["--key", str(place / "key" / file_stem(client)), "--idle", str(self.idle)]
        with (place / "output.log").open("ab") as out:
            self.nodes[client] = subprocess.Popen(
                [*command, *self.options, *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

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
        for process in self.nodes.values():
            process.terminate()
        for process in self.nodes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if hasattr(self, "server"):
            self.server.close()


@contextlib.contextmanager
def local_federation(folder: Path, federation: Federation, data: str, options: Sequence[str] = ()) -> Iterator[Local]:
    """A federation on loopback whose clients have the data that a simulation would deal out to them."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: choose another folder")
    clients = sorted(federation.clients)
    local = Local(folder, clients, options=options)
    name, _, path = absolute(data, Path.cwd()).partition(":")
    for client in clients:
        own = local.place(client) / "data"
        own.mkdir(parents=True)
        if name == "folder":
            copy_file(own_file(Path(path), client), own)
        elif federation.data.rows is None:
            write_share(own / f"{file_stem(client)}{SHARE}", federation, client)
        else:
            raise InputError(f"the table {name} is one file: give a folder of files, one a client (folder:PATH)")
    try:
        yield local.start()
    finally:
        local.close()


def kept_digest(run: Path) -> str:
    """The digest of a finished run."""
    return str(json.loads((run / "summary.json").read_bytes())["digest"])
