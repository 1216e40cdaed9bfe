"""Three nodes that meet in a folder: a node or the server is killed, and the run ends as the simulator's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from network_helpers import LONG, check, in_background, kill, log_of, prepared_for, processes_of, records_of, wait_for

from sparsona.engines.network.deploy import MailboxFederation, local_federation

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailboxFederation]:
    folder, prepared = tmp_path_factory.mktemp("local"), prepared_for("fedavg")
    federation = prepared.setup.federation
    nodes = MailboxFederation(folder / "f", sorted(federation.clients), mailbox=str(folder / "box"), idle=0.5)
    with local_federation(nodes, federation, prepared.experiment) as running:
        yield running


def test_a_node_killed_in_a_round_comes_back_and_goes_on(local: MailboxFederation) -> None:
    prepared = prepared_for("fedspa", rounds=4)
    thread, problems = in_background(local, prepared, "killed")
    wait_for(lambda: "round 1: received" in log_of(local, "c1"))
    kill(local.place("c1"))
    local.nodes["c1"].wait()
    local.start_node("c1")
    thread.join(LONG)
    assert not thread.is_alive()
    assert not problems
    check(local.folder / "server" / "runs" / "killed", prepared)


def test_a_server_killed_in_a_run_goes_on_where_it_stopped(local: MailboxFederation) -> None:
    prepared = prepared_for("fedpse", rounds=4)
    thread, problems = in_background(local, prepared, "resumed")
    wait_for(lambda: '"round":2' in records_of(local, "resumed"))
    assert local.server is not None
    os.kill(local.server.pid, signal.SIGKILL)
    thread.join(LONG)
    assert problems
    check(local.run(prepared.experiment, "resumed"), prepared)


def test_deploy_local_needs_no_flower_and_leaves_nothing_behind(tmp_path: Path) -> None:
    box, scratch = tmp_path / "box", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", WITHOUT_FLOWER, "deploy", "local", "--data", "digits", "--rounds", "2"]
    command += ["--nodes", "3", "--method", "fedpse", "--mailbox", str(box)]
    env = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=LONG)
    assert done.returncode == 0, done.stderr
    assert "the simulator gives the same digest and the same bytes" in done.stdout
    wait_for(lambda: not processes_of(scratch), 10)
    assert not list(scratch.iterdir())
    assert not [path for path in box.rglob("*") if path.is_file()]


WITHOUT_FLOWER = """
import sys
sys.modules["flwr"] = None
from sparsona.cli import main
main()
"""
