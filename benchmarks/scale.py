"""How a federation grows: time, memory and disk for 1,000 to 100,000 registered clients, one in a hundred a round.

    python benchmarks/scale.py [--clients 1000 10000 100000] [--methods fedavg fedpse fedspa] [--rounds 10]
                               [--model mlp] [--memory-mb 16] [--results scale.jsonl] [--draw scale.png]

Every client has ten samples, seven of them to train on. The model is an mlp 64-50-10 (3,760 weights), or with
``--model cnn-mcmahan`` a ConvNet of 1,663,370. A round draws one client in a hundred, as ``schedule.sample`` does,
trains them on the pool and ends with a checkpoint; nobody is measured. Each size runs in a process of its own.
`--memory-mb` is `server_memory_mb`. pFedNet's personal part is the bias of the output, ten numbers.

Start-up is all from the data in memory to the first downlink: dealing the samples out, the server's state, the
workers. A round is the mean of the last half of the rounds, a checkpoint what it adds; the processor time of the server
and of the workers for both stands beside, since it hardly depends on who else uses the machine. Memory is the peak of
the server process, and what it had before the first round. Disk is the run directory at the end. What is in
``--results`` is not run again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data.dataset import Dataset
from sparsona.engines.pool import Pool
from sparsona.federation.rounds import assemble
from sparsona.prepare import prepare
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.records import RoundReport

EACH, SHARE = 10, 0.01
SHAPES = {"mlp": (1, 8, 8), "cnn-mcmahan": (1, 28, 28)}
OPTIONS = {"pfednet": {"layout": "split", "own": 0.003}}


@dataclass(frozen=True)
class Grown:
    """What one size took: seconds and megabytes. `heard` clients have taken part; `processor` is the server's own time
    for a round, `turns` that of the workers, `before` its memory before the first. `held` is what it has in memory for
    its clients, `rests` what it has put aside."""

    method: str
    model: str
    clients: int
    memory: int
    rounds: int
    weights: int
    heard: int
    start: float
    round: float
    checkpoint: float
    processor: float
    turns: float
    before: float
    server: float
    worker: float
    held: float
    rests: float
    disk: float
    files: int

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        return self.method, self.model, self.clients, self.memory, self.rounds


class TimedCheckpointer(Checkpointer):
    """Counts the seconds of its checkpoints."""

    seconds = 0.0

    def save(self, *what: Any) -> None:
        began = time.perf_counter()
        super().save(*what)
        self.seconds += time.perf_counter() - began


class StopRun(Exception):
    """The rounds are done; nobody shall be measured."""


def measure(method: str, model: str, clients: int, memory: int, rounds: int) -> Grown:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 255, (clients * EACH, *SHAPES[model]), np.uint8)
    targets = rng.integers(0, 10, len(inputs))
    data = Dataset("noise", inputs, targets, classes=10, mean=(0.5,), std=(0.3,), model=model)
    settings = {
        "method": method, "clients": clients, "partition": "iid", "rounds": 10**6, "engine": "pool",
        "schedule": {"sample": SHARE}, "evaluation": {"every": 0}, "training": {"batch": EACH},
        "options": OPTIONS.get(method, {}),
    }  # fmt: skip
    began = time.perf_counter()
    setup = (prepared := prepare(settings, data=data)).setup
    engine = Pool(setup)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        records = place / "records.jsonl"
        evaluation = prepared.experiment.evaluation
        loop = assemble(
            setup, engine, prepared.schedule, evaluation, records=records, checkpoint=place, memory=memory * 2**20
        )
        loop.checkpointer = checkpointer = TimedCheckpointer(place, records)
        start, before = time.perf_counter() - began, peak_mb()
        ends = [(time.perf_counter(), 0.0, time.process_time(), children_seconds())]

        def watch(report: RoundReport) -> None:
            ends.append((time.perf_counter(), checkpointer.seconds, time.process_time(), children_seconds()))
            if report.round == rounds:
                raise StopRun

        try:
            loop.run(watch)
        except StopRun:
            pass
        finally:
            engine.close()
        counted = rounds - rounds // 2
        spent = ((e - b) / counted for b, e in zip(ends[rounds // 2], ends[-1], strict=True))
        took, checkpoint, processor, turns = spent
        files = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
        rests = sum(path.stat().st_size for path in (place / "resting").iterdir())
        return Grown(
            method, model, clients, memory, rounds, setup.task.layout.size, len(loop.delivery.snapshot().acked), start,
            took - checkpoint, checkpoint, processor, turns, before, peak_mb(), engine.peak_rss_mb,
            (loop.resting.held + engine.references.files.held[1]) / 1e6, rests / 1e6, sum(files) / 1e6, len(files),
        )  # fmt: skip


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def children_seconds() -> float:
    """The processor time of the processes that this one has started; Linux tells it while they run."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            cells = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(cells[1]) == os.getpid():
            ticks += int(cells[11]) + int(cells[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def draw(rows: Sequence[Grown], to: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.2), layout="constrained")
    time_, memory, disk = figure.subplots(1, 3)
    for method, model in dict.fromkeys((row.method, row.model) for row in rows):
        own = [row for row in rows if (row.method, row.model) == (method, model)]
        clients, label = [row.clients for row in own], f"{method}, {own[0].weights:,} weights"
        seconds = [row.round + row.checkpoint for row in own]
        time_.plot(clients, [1000 * s / max(1, SHARE * n) for s, n in zip(seconds, clients, strict=True)], "o-")
        memory.plot(clients, [row.server for row in own], "o-", label=label)
        disk.plot(clients, [row.disk for row in own], "o-")
    time_.set(xscale="log", yscale="log", xlabel="clients, 1 % of them a round", ylabel="ms of a round a client in it")
    memory.set(xscale="log", ylim=(0, None), xlabel="clients", ylabel="peak memory of the server, MB")
    disk.set(xscale="log", yscale="log", xlabel="clients", ylabel="run directory, MB")
    memory.legend()
    figure.savefig(to, dpi=110)


def kept(file: Path | None) -> list[Grown]:
    if file is None or not file.exists():
        return []
    return [Grown(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


COLUMNS = ("method", "weights", "registered", "heard", "start-up s", "a round ms", "checkpoint ms", "CPU ms: server",
           "workers", "server MB", "before MB", "worker MB", "held MB", "in files MB", "disk MB", "files")  # fmt: skip


def line(row: Grown) -> str:
    cells = (row.method, f"{row.weights:,}", f"{row.clients:,}", f"{row.heard:,}", f"{row.start:.1f}",
             f"{1000 * row.round:,.0f}", f"{1000 * row.checkpoint:,.0f}", f"{1000 * row.processor:,.0f}",
             f"{1000 * row.turns:,.0f}", f"{row.server:,.0f}", f"{row.before:,.0f}", f"{row.worker:,.0f}",
             f"{row.held:,.1f}", f"{row.rests:,.1f}", f"{row.disk:,.1f}", f"{row.files:,}")  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedpse", "fedspa"], metavar="METHOD")
    parser.add_argument("--model", choices=sorted(SHAPES), default="mlp")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--memory-mb", type=int, default=16, help="server_memory_mb of the runs")
    parser.add_argument("--results", type=Path, help="keep a line of each size in this file")
    parser.add_argument("--draw", type=Path, help="also draw it into this file")
    asked = parser.parse_args()
    done = {row.key: row for row in kept(asked.results)}
    context = multiprocessing.get_context("spawn")
    print(f"{datetime.date.today()}, {EACH} samples a client, {SHARE:.0%} of the clients a round\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for method in asked.methods:
        for clients in asked.clients:
            key = method, asked.model, clients, asked.memory_mb, asked.rounds
            if key not in done:
                with context.Pool(1) as process:
                    done[key] = process.apply(measure, key)
                if asked.results:
                    with asked.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(done[key])) + "\n")
            print(line(done[key]), flush=True)
    if asked.draw:
        draw(list(done.values()), asked.draw)


if __name__ == "__main__":
    main()
