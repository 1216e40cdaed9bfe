"""A long run: memory, open files and files on disk must not grow with the rounds.

    python benchmarks/soak.py [--rounds 10000] [--method fedstc] [--engine inprocess]

Memory is what this process holds, measured ten times; files are those of the run directory but for records.jsonl, whose
length grows by a line a round and client. The growth is that from the second to the last measurement.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import sparsona
from sparsona.runs.records import RoundReport


def held_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--method", default="fedstc")
    parser.add_argument("--engine", default="inprocess")
    given = parser.parse_args()
    rows: list[tuple[int, float, int, int]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"

        def measure(report: RoundReport) -> None:
            if report.round % max(1, given.rounds // 10) == 0:
                files = sum(path.is_file() and path.name != "records.jsonl" for path in out.rglob("*"))
                rows.append((report.round, held_mb(), len(os.listdir("/proc/self/fd")), files))
                round, held, opened, files = rows[-1]
                print(f"round {round}: {held:.1f} MB, {opened} open files, {files} files on disk", flush=True)

        settings = {"clients": 3, "evaluation": {"every": 0}, "training": {"steps": 1}, "engine": given.engine}
        sparsona.run(
            given.method, rounds=given.rounds, out=out, on_round=measure, schedule={"sample": 0.67}, **settings
        )
    first, last = rows[1], rows[-1]
    print(
        f"{given.method}, {given.rounds} rounds, {time.monotonic() - began:.0f} s: memory grew by "
        f"{last[1] - first[1]:.2f} MB in {last[0] - first[0]} rounds, open files by {last[2] - first[2]}, "
        f"files on disk by {last[3] - first[3]}"
    )


if __name__ == "__main__":
    main()
