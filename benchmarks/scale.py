"""How a federation grows: start-up, time of a round and memory for 10 to 10,000 clients, one in a hundred a round.

    python benchmarks/scale.py [--clients 10 100 1000 10000] [--methods fedavg fedpse fedspa] [--draw scale.png]

Every client has ten samples for an mlp 64-50-10 (3,760 weights). Each size runs in a process of its own, on the pool.
Start-up is all from the data in memory to the first downlink: dealing the samples out, the server's state, the
workers. A round is the mean of those that fit into a few seconds, evaluation off. Memory is the peak of the server
process; that of a worker stands beside it.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsona.data import Columns, from_arrays
from sparsona.engines.pool import Pool
from sparsona.federation.rounds import Rounds
from sparsona.prepare import prepare
from sparsona.runs.records import RunLog

EACH, SECONDS = 10, 4.0


@dataclass(frozen=True)
class Grown:
    """What one size took."""

    method: str
    clients: int
    start: float
    round: float
    server: float
    worker: float


def measure(method: str, clients: int) -> Grown:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 255, (clients * EACH * 5 // 4, 8, 8), np.uint8)
    data = from_arrays((inputs, rng.integers(0, 10, len(inputs))), model="mlp", columns=Columns(scaling="none"))
    settings = {
        "method": method, "clients": clients, "partition": "iid", "rounds": 10**6, "engine": "pool",
        "schedule": {"sample": max(0.01, 1 / clients)}, "evaluation": {"every": 0}, "training": {"batch": EACH},
    }  # fmt: skip
    began = time.perf_counter()
    prepared = prepare(settings, data=data)
    setup = prepared.setup
    engine = Pool(setup)
    try:
        sizes = {name: len(share.test) for name, share in setup.federation.splits.items()}
        run_log = RunLog(sizes, setup.objective.higher_is_better)
        loop = Rounds(setup, engine, prepared.schedule, prepared.experiment.evaluation, run_log)
        start = time.perf_counter() - began
        for warm in range(2):
            loop._round(warm)
        began, done = time.perf_counter(), 0
        while done < 3 or time.perf_counter() - began < SECONDS:
            loop._round(2 + done)
            done += 1
        each = (time.perf_counter() - began) / done
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Grown(method, clients, start, each, peak, engine.peak_rss_mb)
    finally:
        engine.close()


def draw(rows: Sequence[Grown], to: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    time_, memory = figure.subplots(1, 2)
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        clients = [row.clients for row in own]
        time_.plot(clients, [1000 * row.round / max(1, row.clients // 100) for row in own], "o-", label=method)
        memory.plot(clients, [row.server for row in own], "o-", label=method)
    time_.set(xscale="log", yscale="log", xlabel="clients, 1 % of them a round", ylabel="ms of a round a client in it")
    memory.set(xscale="log", ylim=(0, None), xlabel="clients", ylabel="peak memory of the server, MB")
    memory.legend()
    figure.savefig(to, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedpse", "fedspa"], metavar="METHOD")
    parser.add_argument("--draw", type=Path, help="also draw it into this file")
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(f"{datetime.date.today()}, mlp 64-50-10, {EACH} samples a client, 1 % of the clients a round\n")
    print("| method | clients | start-up s | s a thousand clients | a round ms | server MB | worker MB |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for method in asked.methods:
        for clients in asked.clients:
            with context.Pool(1) as process:
                row = process.apply(measure, (method, clients))
            rows.append(row)
            per = f"{1000 * row.start / clients:.2f}" if clients >= 1000 else ""
            print(
                f"| {method} | {clients:,} | {row.start:.1f} | {per} | {1000 * row.round:.0f} "
                f"| {row.server:.0f} | {row.worker:.0f} |",
                flush=True,
            )
    if asked.draw:
        draw(rows, asked.draw)


if __name__ == "__main__":
    main()
