"""Federations on loopback: SuperLink, SuperNodes, TLS and keys. The simulator says what must come out."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sparsona.api import execute
from sparsona.engines.network.deploy import LocalNodes, LoopbackFederation, local_federation
from sparsona.prepare import Prepared, prepare
from sparsona.runs.directory import RunDirectory

SETTINGS = {
    "data": "digits",
    "clients": 3,
    "partition": "dirichlet-classes:0.5",
    "seed": 5,
    "rounds": 2,
    "evaluation": {"every": 0, "post": "participants"},
}
LONG = 240.0
"""Seconds. Others use the machine too."""


def prepared_for(method: str, **settings: Any) -> Prepared:
    return prepare({**SETTINGS, "method": method, **settings})


@contextlib.contextmanager
def three_nodes(folder: Path) -> Iterator[LoopbackFederation]:
    prepared = prepared_for("fedavg")
    federation = prepared.setup.federation
    local = LoopbackFederation(folder / "f", sorted(federation.clients))
    with local_federation(local, federation, prepared.experiment) as running:
        yield running


def wait_for(what: Callable[[], object], seconds: float = LONG) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


def processes_of(folder: Path) -> dict[int, str]:
    """The processes that have a folder in their command or their environment, and their commands."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command, state = (entry / "cmdline").read_bytes(), (entry / "stat").read_text().rpartition(")")[2]
            around = (entry / "environ").read_bytes()
        except OSError:
            continue
        if state.split()[0] != "Z" and str(folder).encode() in command + around:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode()
    return found


def kill(folder: Path, command: str = "") -> None:
    """Kill -9, all at once, the processes of a folder whose command has this in it."""
    doomed = [pid for pid, line in processes_of(folder).items() if command in line]
    assert doomed
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)


def in_background(local: LocalNodes, prepared: Prepared, name: str) -> tuple[threading.Thread, list[BaseException]]:
    problems: list[BaseException] = []

    def run() -> None:
        try:
            local.run(prepared.experiment, name)
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, problems


def log_of(local: LocalNodes, client: str) -> str:
    return _text(local.place(client) / "state" / "node.log")


def records_of(local: LocalNodes, name: str) -> str:
    return _text(local.folder / "server" / "runs" / name / "records.jsonl")


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def check(run: Path, prepared: Prepared) -> None:
    """The run gave what the simulator gives."""
    summary, simulated = RunDirectory(run).summary(), execute(prepared).summary
    assert summary["digest"] == simulated["digest"]
    assert summary["bytes"] == simulated["bytes"]
