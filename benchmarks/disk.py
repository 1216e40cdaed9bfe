"""A disk that is full at ten moments of a run: one line, exit code 2, and with more room it goes on.

    sudo python benchmarks/disk.py [--moments 10] [--method local]

The disk is a tmpfs of its own, so this needs the right to mount. Its size is a share of what the whole run takes, so
that it is full while the experiment, checkpoints, records, models or the summary are written. Then it is made larger.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS, CLIENTS = 12, 6


def sparsona(method: str, out: Path) -> subprocess.CompletedProcess[str]:
    words = ["run", method, "--rounds", ROUNDS, "--clients", CLIENTS, "--engine", "inprocess", "--quiet"]
    resume = ["--resume"] if (out / "experiment.toml").exists() else []
    program = "from sparsona.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words), "--out", str(out), *resume],
        capture_output=True,
        text=True,
        check=False,
    )


def used(folder: Path) -> int:
    """The bytes that a folder takes, in whole pages."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*"))


def where(out: Path) -> str:
    """How far a run has come."""
    if (out / "models").exists():
        return f"models, {len(list((out / 'models').iterdir()))} of {CLIENTS}"
    manifest = out / "checkpoint" / "manifest.json"
    return f"round {json.loads(manifest.read_text())['done'] + 1 if manifest.exists() else 1}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--method", default="local")
    given = parser.parse_args()
    good = 0
    with tempfile.TemporaryDirectory() as base:
        whole = Path(base) / "whole"
        print(sparsona(given.method, whole).stderr, end="")
        digest = json.loads((whole / "summary.json").read_text())["digest"]
        need = used(whole)
        for moment in range(given.moments):
            size = need * (moment + 1) // (given.moments + 1)
            disk = Path(base) / f"disk{moment}"
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
            try:
                told = sparsona(given.method, disk / "run")
                stopped = where(disk / "run")
                clear = told.returncode == 2 and told.stderr.count("\n") == 1 and "No space left" in told.stderr
                subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
                again = sparsona(given.method, disk / "run")
                same = again.returncode == 0 and digest == json.loads((disk / "run/summary.json").read_text())["digest"]
            finally:
                subprocess.run(["umount", disk], check=True)
            good += clear and same
            print(
                f"{size // 1024} kB: full in {stopped}; one line and exit 2: {clear}; the same digest then: {same}",
                flush=True,
            )
            if not clear or not same:
                print(told.stderr, again.stderr)
    print(f"{good} of {given.moments} moments: one line, and nothing lost")


if __name__ == "__main__":
    main()
