"""Locks, memory, and a system without POSIX: its modules are hidden, and what Windows lacks is taken away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparsona.system import peak_rss_kb, take_lock

HIDDEN = """
import os, sys
import filelock, subprocess, torch, numba  # they have ways of their own on every system
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("O_ASYNC", "O_DIRECTORY", "O_NOFOLLOW", "fork", "memfd_create", "sched_getaffinity"):
    delattr(os, name)
"""


def without_posix(code: str, folder: Path) -> str:
    """The output of a program on a system without POSIX."""
    words = [sys.executable, "-c", HIDDEN + code]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_module_of_a_simulation_is_imported_without_posix(tmp_path: Path) -> None:
    code = """
import importlib, pkgutil
import sparsona
apart = ("sparsona.engines.network", "sparsona.engines.ray", "sparsona.reproduce", "sparsona.__main__")
names = [m.name for m in pkgutil.walk_packages(sparsona.__path__, "sparsona.", )]
chosen = [name for name in names if not name.startswith(apart)]
for name in chosen:
    importlib.import_module(name)
print(len(chosen))
"""
    assert int(without_posix(code, tmp_path)) > 200


def test_a_run_is_written_and_read_without_posix(tmp_path: Path) -> None:
    code = """
import sparsona
from sparsona.errors import InputError
settings = dict(clients=2, seed=1, schedule={"sample": 1.0})
whole = sparsona.run("fedavg", rounds=2, engine="auto", out="run", **settings)
assert sparsona.load("run").summary["digest"] == whole.summary["digest"]
assert whole.summary["peak_rss_mb"] == 0, "it is not known"
try:
    sparsona.run("fedavg", rounds=1, engine="pool", workers=2, **settings)
except InputError as error:
    print(error)
print(whole.summary["digest"])
"""
    *refused, digest = without_posix(code, tmp_path).splitlines()
    assert "--engine inprocess" in refused[-1]
    with_posix = "import sparsona; print(sparsona.run('fedavg', rounds=2, clients=2, seed=1).summary['digest'])"
    done = subprocess.run([sys.executable, "-c", with_posix], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_is_held_once_and_freed_with_its_process(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "lock" if kind == "file" else tmp_path
    code = f"from pathlib import Path; from sparsona.system import take_lock; held = take_lock(Path({str(path)!r}))"
    with take_lock(path):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "BlockingIOError" in other.stderr
    subprocess.run([sys.executable, "-c", code], check=True)
    take_lock(path).close()


def test_a_lock_is_held_once_without_posix(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from sparsona.system import take_lock
with take_lock(Path(".")):
    try:
        take_lock(Path("."))
    except BlockingIOError:
        print("held")
take_lock(Path(".")).close()
"""
    assert without_posix(code, tmp_path) == "held\n"


def test_memory_is_counted_in_kilobytes() -> None:
    assert 10_000 < peak_rss_kb() < 100_000_000
    assert peak_rss_kb(children=True) >= 0
