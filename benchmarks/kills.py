"""Runs that are killed by kill -9 at random moments and resumed: do they end as if nothing had happened?

    python benchmarks/kills.py [--kills 100] [--methods fedavg,fedpse,...] [--seed 0] [--out runs/kills.json]

For each method: one whole run, then a run that is killed again and again and goes on with --resume, at last to its end.
Equal means: the same digest, bytes and scores in summary.json, the same lines in records.jsonl but for their seconds.
The runs are forks of this process, so that a kill costs no import. It continues where it was stopped: see --out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sparsona
from sparsona.files import write_atomically
from sparsona.training.determinism import make_deterministic

METHODS = "fedavg,fedprox,ditto,fedper,fedpse,fedstc,fedspa,pfedgate,pfednet,spfl"


def child(method: str, out: Path, rounds: int) -> int:
    """Start the run in a process of its own; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        there = (out / "experiment.toml").exists()
        sparsona.run(method, clients=4, rounds=rounds, engine="inprocess", out=out, resume=there)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  (the parent reads it)
        (out.parent / "error.txt").write_text(f"{type(error).__name__}: {error}")
        os._exit(1)


def finished(pid: int, seconds: float) -> int | None:
    """Return the exit code of a process that ends in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def whole(method: str, out: Path, rounds: int) -> float:
    """Run to the end; returns the seconds that it took."""
    began = time.monotonic()
    code = finished(child(method, out, rounds), 3600)
    if code != 0:
        sys.exit(f"{method}: the run ended with {code}: {(out.parent / 'error.txt').read_text()}")
    return time.monotonic() - began


def result(out: Path) -> dict[str, Any]:
    """All that must not depend on kills."""
    summary = json.loads((out / "summary.json").read_text())
    lines = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    kept = {key: summary[key] for key in ("digest", "bytes", "paper_bytes", "accuracy", "picked", "flops")}
    return kept | {"records": [{key: value for key, value in line.items() if key != "seconds"} for line in lines]}


def killed(method: str, kills: int, rounds: int, rng: random.Random, folder: Path) -> dict[str, Any]:
    sparsona.run(method, clients=4, rounds=1, engine="inprocess")  # compiles what the forks would compile each
    seconds = whole(method, folder / "whole", rounds)
    expected = result(folder / "whole")
    done, ends, equal = 0, 0, 0
    out = folder / "broken"
    while done < kills:
        pid = child(method, out, rounds)
        code = finished(pid, rng.uniform(0, 1.1 * seconds))
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            done += 1
        if code is not None or done == kills:
            whole(method, out, rounds)
            ends += 1
            equal += result(out) == expected
            shutil.rmtree(out)
    return {"kills": done, "runs": ends, "equal": equal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="over all methods")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/kills.json"))
    given = parser.parse_args()
    make_deterministic()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    names = given.methods.split(",")
    for place, name in enumerate(names):
        share = given.kills * (place + 1) // len(names) - given.kills * place // len(names)
        if name not in found:
            with tempfile.TemporaryDirectory() as folder:
                found[name] = killed(name, share, given.rounds, random.Random(f"{given.seed} {name}"), Path(folder))
            write_atomically(given.out, json.dumps(found, indent=1))
        print(f"{name}: {found[name]}", flush=True)
    total = {key: sum(row[key] for row in found.values()) for key in ("kills", "runs", "equal")}
    print(f"{total['kills']} kills, {total['equal']} of {total['runs']} runs equal")


if __name__ == "__main__":
    main()
