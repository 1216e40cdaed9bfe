"""The pool from the command line: Ctrl-C, kill -9, and what `--engine auto` chooses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import alive

import sparsona
from sparsona.experiment import read
from sparsona.prepare import prepare


def command(*words: object) -> list[str]:
    return [sys.executable, "-c", "from sparsona.cli import main; main()", *map(str, words)]


def rounds_done(run: Path) -> int:
    try:
        done: int = json.loads((run / "checkpoint" / "manifest.json").read_text())["done"]
    except (FileNotFoundError, json.JSONDecodeError):
        return 0
    return done


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def stopped(words: list[object], run: Path, name: signal.Signals, after: int) -> tuple[int, str]:
    """Start a run on the pool, stop it with a signal after some rounds; nobody may be left."""
    process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True)
    while rounds_done(run) < after and process.poll() is None:
        time.sleep(0.01)
    workers = children(process.pid)
    os.kill(process.pid, name)
    _, told = process.communicate(timeout=60)
    assert len(workers) == 2, told
    deadline = time.monotonic() + 20
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    return process.returncode, told


def test_interrupted_and_killed_it_goes_on_with_the_same_digest(tmp_path: Path) -> None:
    run, rounds = tmp_path / "run", 400
    words = ["run", "local", "--clients", 4, "--seed", 5, "--eval-every", 0, "--rounds", rounds, "--quiet"]
    pool = ["--engine", "pool", "--workers", 2]
    code, told = stopped([*words, *pool, "--out", run], run, signal.SIGINT, 3)
    assert code == 130
    assert "continue with sparsona run" in told
    assert "Traceback" not in told
    again = ["run", run / "experiment.toml", "--resume", "--quiet"]
    before = rounds_done(run)
    code, told = stopped([*again, *pool], run, signal.SIGKILL, before + 3)
    assert code == -9, told
    assert before + 3 <= rounds_done(run) < rounds
    subprocess.run(command(*again, "--engine", "inprocess"), check=True)
    digest = json.loads((run / "summary.json").read_text())["digest"]
    whole = sparsona.run("local", clients=4, seed=5, rounds=rounds, evaluation={"every": 0}, engine="inprocess")
    assert digest == whole.summary["digest"]


def test_small_work_stays_in_this_process_and_large_work_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(**settings: Any) -> str:
        return prepare({"method": "fedavg", "trainer": "plain", **settings}).experiment.engine

    monkeypatch.setattr("sparsona.engines.choice.cores", lambda: 2)
    assert engine() == "inprocess"
    assert engine(rounds=5000) == "pool"
    assert engine(rounds=5000, workers=1) == "inprocess"
    assert engine(engine="pool") == "pool"
    assert engine(rounds=5000, trainer="fused") == "inprocess", "its turns are shorter than the way to a worker"
    monkeypatch.setattr("sparsona.engines.choice.cores", lambda: 4)
    assert engine(rounds=5000, trainer="fused") == "pool"
    monkeypatch.setattr("sparsona.engines.choice.cores", lambda: 1)
    assert engine(rounds=5000) == "inprocess"


def test_the_choice_is_written_down(tmp_path: Path) -> None:
    sparsona.run("fedavg", rounds=1, clients=2, out=tmp_path / "run")
    settings = read(tmp_path / "run" / "experiment.toml")
    assert (settings["engine"], settings["trainer"]) == ("inprocess", "fused")
