"""Three nodes to which something happens: a node, the SuperLink or the server's loop is killed, a node is slow."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from network_helpers import LONG, check, in_background, kill, log_of, prepared_for, records_of, three_nodes, wait_for

pytest.importorskip("flwr", reason='the network needs Flower: pip install "sparsona[flower]"')

from sparsona.engines.network.deploy import LoopbackFederation
from sparsona.runs.directory import RunDirectory

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackFederation]:
    """Three nodes for the tests that do something to them."""
    with three_nodes(tmp_path_factory.mktemp("local")) as running:
        yield running


@contextlib.contextmanager
def halted(pid: int) -> Iterator[None]:
    """Stop a process in the block. Another process continues it after `LONG` seconds, whatever happens to this one."""
    os.kill(pid, signal.SIGSTOP)
    rescue = subprocess.Popen(["sh", "-c", f"sleep {LONG}; kill -CONT {pid}"], start_new_session=True)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        rescue.kill()
        rescue.wait()


def test_a_node_killed_in_a_round_comes_back_and_goes_on(local: LoopbackFederation) -> None:
    prepared = prepared_for("fedspa", rounds=4)
    before = log_of(local, "c1").count("round 1: received")
    thread, problems = in_background(local, prepared, "killed")
    wait_for(lambda: log_of(local, "c1").count("round 1: received") > before)
    kill(local.place("c1"))
    local.nodes["c1"].wait()
    local.start_node("c1")
    thread.join(LONG)
    assert not thread.is_alive()
    assert not problems
    check(local.server.home / "runs" / "killed", prepared)


def test_a_superlink_killed_in_a_run_goes_on_where_it_stopped(local: LoopbackFederation) -> None:
    prepared = prepared_for("fedpse", rounds=4)
    thread, problems = in_background(local, prepared, "resumed")
    wait_for(lambda: '"round":2' in records_of(local, "resumed"))
    os.kill(local.server.link.pid, signal.SIGKILL)
    thread.join(LONG)
    assert problems
    local.server.close()
    local.start_server()
    check(local.run(prepared.experiment, "resumed"), prepared)


def test_a_server_loop_killed_in_a_run_goes_on_where_it_stopped(local: LoopbackFederation) -> None:
    prepared = prepared_for("pfednet", rounds=4)
    in_background(local, prepared, "loop")
    wait_for(lambda: '"round":2' in records_of(local, "loop"))
    kill(local.server.home, "serverapp.py")
    check(local.run(prepared.experiment, "loop"), prepared)


def test_a_killed_executor_is_started_again_and_the_owner_reads_it(local: LoopbackFederation) -> None:
    prepared = prepared_for("fedavg")
    kill(local.place("c0"), "executor.py")
    wait_for(lambda: "it is started again" in log_of(local, "c0"))
    check(local.run(prepared.experiment, "executor"), prepared)


def test_by_windows_a_stopped_node_is_late_and_the_rounds_go_on(local: LoopbackFederation) -> None:
    """It is stopped until two rounds have gone on without it: seconds would mean something else on a busy machine."""
    prepared = prepared_for("plga", rounds=12, schedule={"window": 4.0})
    before = log_of(local, "c2").count("round 1: received")
    thread, problems = in_background(local, prepared, "windows")
    wait_for(lambda: log_of(local, "c2").count("round 1: received") > before)
    with halted(local.nodes["c2"].pid):
        done = records_of(local, "windows").count('"client":"c0"')
        wait_for(lambda: records_of(local, "windows").count('"client":"c0"') >= done + 3)
    thread.join(LONG)
    assert not thread.is_alive()
    assert not problems
    lines = [line for line in RunDirectory(local.server.home / "runs" / "windows").lines() if line.client == "c2"]
    missed = [line.round for line in lines if not line.arrived]
    assert missed
    assert max(line.round for line in lines if line.up.total) > min(missed)
