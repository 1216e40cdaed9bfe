"""`sparsona deploy local`, from the first process to the last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from network_helpers import LONG, processes_of, wait_for

pytest.importorskip("flwr", reason='the network needs Flower: pip install "sparsona[flower]"')

pytestmark = pytest.mark.network


def deploy_local(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The command in a process whose descendants are all known by the folder of their temporary files."""
    command = [sys.executable, "-m", "sparsona", "deploy", "local", "--data", "digits", "--rounds", "2", *options]
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def test_deploy_local_ends_with_the_simulators_digest_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with deploy_local(tmp_path, "--nodes", "3", "--method", "fedpse") as running:
        out, err = running.communicate(timeout=LONG)
    assert running.returncode == 0, err
    digests = [line.split()[-1] for line in out.splitlines() if line.startswith("digest of the ")]
    assert len(digests) == 2
    assert len(set(digests)) == 1
    assert "the simulator gives the same digest and the same bytes" in out
    wait_for(lambda: not processes_of(tmp_path), 10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_deploy_local_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    with deploy_local(tmp_path, "--nodes", "1", "--method", "fedavg", "--no-check") as running:
        assert running.stderr is not None
        assert any("c0 is here" in line for line in running.stderr)
        assert len(processes_of(tmp_path)) >= 5
        running.send_signal(number)
        running.communicate(timeout=60)
    wait_for(lambda: not processes_of(tmp_path), 60 if number == signal.SIGKILL else 10)
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())
