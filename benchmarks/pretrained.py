"""Memory and bytes of a run whose model has a frozen body: the body is held once, whatever the number of workers.

    python benchmarks/pretrained.py [--million 100] [--workers 4] [--methods fedavg fedpse] [--rounds 3]

The body is a random float16 table of words, the trained part a head of 258 weights on top. Each run is a process of its
own with the pool engine, once with the body and once with a table of 100 words. Memory is that of the process and its
workers: proportional set sizes, and shared memory once. `peak` is the largest of all moments from the first round on,
`end` the one after the last round, with all workers there. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import sparsona

WIDTH, FEW, CLIENTS, ROWS, LENGTH, MB = 128, 100, 4, 20, 12, 2**20


class Pretrained(nn.Module):
    """A frozen float16 table of words, and a trained head."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.body = nn.Embedding(words, WIDTH, dtype=torch.float16).requires_grad_(False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return two outputs per text."""
        found: torch.Tensor = self.head(self.body(input_ids).float().mean(1))
        return found


def used_memory() -> int:
    """Return the memory of this process and its descendants in bytes, shared memory counted once."""
    own, waiting, shared = 0, [os.getpid()], dict[tuple[int, int], int]()
    while waiting:
        place = Path(f"/proc/{waiting.pop()}")
        try:
            sizes = dict(re.findall(r"(\w+): +(\d+) kB", (place / "smaps_rollup").read_text()))
            for thread in (place / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
            for file in (place / "fd").iterdir():
                if os.readlink(file).startswith(("/memfd:", "/dev/shm/")):
                    status = file.stat()
                    shared[status.st_dev, status.st_ino] = 512 * status.st_blocks
        except OSError:  # the process, or the file, is gone
            continue
        own += 1024 * (int(sizes["Pss"]) - int(sizes["Pss_Shmem"]))
    return own + sum(shared.values())


@contextmanager
def watched(found: list[int]) -> Iterator[None]:
    """Note the memory every tenth of a second in this block."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            found.append(used_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measured(method: str, words: int, workers: int, rounds: int) -> dict[str, Any]:
    """Run one experiment, and return its memory and bytes."""
    rng = np.random.default_rng(0)
    data = {
        f"c{i}": ({"input_ids": rng.integers(1, FEW, (ROWS, LENGTH))}, rng.integers(0, 2, ROWS)) for i in range(CLIENTS)
    }
    torch.manual_seed(0)
    net = Pretrained(words)
    found: list[int] = []
    ends: list[int] = []

    def after(report: Any) -> None:
        ends.append(used_memory())
        if len(ends) == 1:
            found.clear()

    with watched(found):
        done = sparsona.run(
            method,
            data=data,
            model=net,
            rounds=rounds,
            lr=0.1,
            engine="pool",
            workers=workers,
            on_round=after,
        )
    bytes = done.summary["bytes"]
    return {
        "method": method,
        "frozen": sum(p.numel() for p in net.parameters() if not p.requires_grad),
        "trained": done.summary["weights"],
        "peak": max(found + ends),
        "end": ends[-1],
        "up": bytes["up"] / CLIENTS / rounds,
        "down": bytes["down"] / CLIENTS / rounds,
        "digest": done.summary["digest"],
    }


def apart(*given: Any) -> dict[str, Any]:
    """Run the same in a process of its own, whose workers can import this file."""
    here = Path(__file__).parent
    code = f"import json, pretrained; print(json.dumps(pretrained.measured(*{given!r})))"
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Print one line per method and body."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--million", type=float, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedpse"])
    options = parser.parse_args(argv)
    for method in options.methods:
        small, large = (
            apart(method, words, options.workers, options.rounds)
            for words in (FEW, round(options.million * 1e6 / WIDTH))
        )
        body = 2 * (large["frozen"] - small["frozen"])
        for name in ("peak", "end"):
            more = large[name] - small[name]
            print(
                f"{method:8} {large['frozen']:>11,} frozen: {name} {more / MB:6.0f} MB more, {more / body:.2f} bodies"
            )
        print(f"{method:8} {large['trained']} trained: {large['up']:.0f} bytes up, {large['down']:.0f} down")


if __name__ == "__main__":
    main()
