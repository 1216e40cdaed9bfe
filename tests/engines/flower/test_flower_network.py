"""A whole federation on loopback: SuperLink, SuperNodes, TLS and keys. The simulator says what must come out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason='the network needs Flower: pip install "sparsona[flower]"')

from sparsona.api import execute
from sparsona.engines.flower.deploy import LOCALHOST, Local, local_federation
from sparsona.engines.flower.keys import CA, make_certificates, make_node_key
from sparsona.engines.flower.processes import STARTED, Child, environment, free_port, supernode
from sparsona.prepare import Prepared, prepare
from sparsona.runs.directory import RunDirectory

pytestmark = pytest.mark.network

SETTINGS = {
    "data": "digits",
    "clients": 3,
    "partition": "dirichlet-classes:0.5",
    "seed": 5,
    "rounds": 2,
    "evaluation": {"every": 0, "post": "participants"},
}
METHODS = ("fedavg", "fedpse", "fedspa", "pfednet", "pfedgate")
LONG = 240.0


def prepared_for(method: str, **settings: Any) -> Prepared:
    return prepare({**SETTINGS, "method": method, **settings})


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """Three nodes that stay up for all tests of this file."""
    folder = tmp_path_factory.mktemp("net") / "f"
    with local_federation(folder, prepared_for("fedavg").setup.federation, "digits") as running:
        yield running


def wait_for(what: Callable[[], bool], seconds: float = LONG) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


def in_background(local: Local, prepared: Prepared, name: str) -> tuple[threading.Thread, list[BaseException]]:
    problems: list[BaseException] = []

    def run() -> None:
        try:
            local.run(prepared.experiment, name)
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, problems


def log_of(local: Local, client: str) -> str:
    return (local.place(client) / "state" / "node.log").read_text()


def check(summary: dict[str, Any], prepared: Prepared) -> None:
    simulated = execute(prepared).summary
    assert summary["digest"] == simulated["digest"]
    assert summary["bytes"] == simulated["bytes"]


@pytest.mark.parametrize("method", METHODS)
def test_the_network_gives_the_simulators_digest_and_bytes(local: Local, method: str) -> None:
    prepared = prepared_for(method)
    check(RunDirectory(local.run(prepared.experiment, method)).summary(), prepared)


def test_a_node_killed_in_a_round_comes_back_and_goes_on(local: Local) -> None:
    prepared = prepared_for("fedspa", rounds=4)
    before = log_of(local, "c1").count("round 1: received")
    thread, problems = in_background(local, prepared, "killed")
    wait_for(lambda: log_of(local, "c1").count("round 1: received") > before)
    local.nodes["c1"].kill()
    local.nodes["c1"].wait()
    local.start_node("c1")
    thread.join(LONG)
    assert not thread.is_alive()
    assert not problems
    check(RunDirectory(local.server.home / "runs" / "killed").summary(), prepared)


def test_a_server_killed_in_a_run_goes_on_where_it_stopped(local: Local) -> None:
    prepared = prepared_for("fedpse", rounds=4)
    records = local.server.home / "runs" / "resumed" / "records.jsonl"
    thread, problems = in_background(local, prepared, "resumed")
    wait_for(lambda: records.exists() and '"round":2' in records.read_text())
    os.kill(local.server.pid, signal.SIGKILL)
    thread.join(LONG)
    assert problems
    local.server.close()
    time.sleep(2)
    local.start_server()
    check(RunDirectory(local.run(prepared.experiment, "resumed")).summary(), prepared)


def test_by_windows_a_stopped_node_is_late_and_the_rounds_go_on(local: Local) -> None:
    prepared = prepared_for("plga", rounds=6, schedule={"window": 5.0})
    before = log_of(local, "c2").count("round 1: received")
    thread, problems = in_background(local, prepared, "windows")
    wait_for(lambda: log_of(local, "c2").count("round 1: received") > before)
    local.nodes["c2"].send_signal(signal.SIGSTOP)
    time.sleep(12)
    local.nodes["c2"].send_signal(signal.SIGCONT)
    thread.join(LONG)
    assert not thread.is_alive()
    assert not problems
    lines = RunDirectory(local.server.home / "runs" / "windows").lines()
    of = {client: [line for line in lines if line.client == client and line.arrived] for client in ("c0", "c2")}
    assert len(of["c2"]) < len(of["c0"])
    assert of["c2"][-1].round > 1


REFUSALS = {
    "key": "Failed to activate SuperNode",
    "certificate": "CERTIFICATE_VERIFY_FAILED",
    "no TLS": "Connection attempt failed",
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_stranger_is_refused(local: Local, wrong: str, tmp_path: Path) -> None:
    make_certificates(tmp_path / "other", ["localhost", LOCALHOST])
    stranger = make_node_key(tmp_path / "keys", "c0")
    own = local.place("c0") / "key" / "c0"
    ca = tmp_path / "other" / CA if wrong == "certificate" else local.ca
    if wrong == "no TLS":
        env = environment(tmp_path, {})
        arguments = ["--superlink", local.address, "--insecure", "--host", LOCALHOST, "--port", str(free_port())]
        child = Child("supernode", arguments, env, tmp_path / "supernode.log", 0.3)
    else:
        key = stranger if wrong == "key" else own
        child = supernode(tmp_path, local.address, ca, key, tmp_path / "socket", 0.3)
    try:
        log = tmp_path / "supernode.log"
        wait_for(lambda: REFUSALS[wrong] in log.read_text(), 90)
        assert "SuperNode ID" not in log.read_text()
    finally:
        child.stop()
    joined = local.place("c0") / "state" / "flower" / "supernode.log"
    wait_for(lambda: joined.exists() and "SuperNode ID" in joined.read_text())


def test_the_started_scripts_import_neither_torch_nor_sparsona() -> None:
    code = f"import sys; sys.path.insert(0, {str(STARTED)!r}); import executor; print(*sys.modules, sep='\\n')"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "torch" not in out
    assert "sparsona" not in out
