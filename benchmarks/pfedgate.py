"""Time and memory of pFedGate's sparse models against FedAvg's dense one: a training step, and inference.

    OMP_NUM_THREADS=1 python benchmarks/pfedgate.py [--models lenet-cifar leaf-cnn] [--batches 32 128 512]

One thread, and the thread's own CPU time, so that other work on the machine counts little; the variants take turns and
the least time of each counts. Memory is torch's own: what lives during the step at its peak, with the weights, the
gradients and the momentum. A training step is one of the real training loop with momentum, weight decay and clip, the
gate included. pFedGate's paper has 0.72 x the time and 0.66 x the memory of FedAvg at density 0.3 and batch 128; with
`--results papers/results` ours are kept, from which its card makes the verdicts on its table 2: every call adds a
measurement of the time, which differs by a tenth and more from call to call.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sparsona.chance import Chance
from sparsona.data.dataset import Dataset
from sparsona.message import Vector
from sparsona.methods.pfedgate.blocks import Budget, Cut
from sparsona.methods.pfedgate.gate import Design, Gated, Gating, block_scales, ready
from sparsona.models import MODELS
from sparsona.training.chain import chain_of
from sparsona.training.config import TrainConfig
from sparsona.training.determinism import make_deterministic
from sparsona.training.job import TrainJob
from sparsona.training.objective import classification
from sparsona.training.runner import ModelRunner
from sparsona_papers._results import Results, machine, results_file
from sparsona_papers._tables import MEASURED

SHAPES = {"lenet-cifar": ((3, 32, 32), 10), "leaf-cnn": ((1, 28, 28), 62)}
CONFIG = TrainConfig(lr=0.01, momentum=0.9, weight_decay=5e-4, clip=10.0)
GATES: tuple[tuple[str, float, Any, Any, Any, int], ...] = (
    ("density 1, ste=repo", 1.0, "repo", "greedy", "one", 1),
    ("density 0.5, ste=repo", 0.5, "repo", "greedy", "one", 1),
    ("density 0.3, ste=repo", 0.3, "repo", "greedy", "one", 1),
    ("density 0.3, ste=repo, gate_pool=4", 0.3, "repo", "greedy", "one", 4),
    ("density 0.3, ste=paper", 0.3, "paper", "greedy", "one", 1),
    ("density 0.3, ste=repo, exact, two paths", 0.3, "repo", "exact", "two", 1),
    ("density 0.5, the defaults: ste=paper, exact, two paths", 0.5, "paper", "exact", "two", 1),
)
"""The rows: density, straight-through rule, knapsack, paths and pooling. The authors' code is greedy with one path."""
CLAIMED = {"density 0.5, ste=repo": 0.5, "density 0.3, ste=repo": 0.3}
"""What the paper's table 2 is about."""
MEGABYTE = 2**20


@dataclass(frozen=True)
class Variant:
    """One row: what trains and what predicts, for a batch of samples."""

    name: str
    train: Callable[[int], None]
    predict: Callable[[], None]
    model: int
    runner: ModelRunner

    def standing(self) -> int:
        """Bytes of the runner after a step: the weights, and the gradient if the step needs all of it."""
        flat = self.runner.flat
        vars(flat).pop("gradient", None)
        flat.module.zero_grad(set_to_none=True)
        self.train(1)
        return flat.weights.nbytes + (flat.gradient.nbytes if "gradient" in vars(flat) else 0)


def variants(model: str, batch: int) -> Iterator[Variant]:
    shape, classes = SHAPES[model]
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (batch, *shape)).astype(np.uint8)
    data = Dataset("noise", inputs, rng.integers(0, classes, batch), classes, mean=(0.5,), std=(0.25,))
    with Chance(0).torch("initial weights"):
        runner = ModelRunner(MODELS.get(model)(shape, classes), data, classification(), Chance(0))
    start, indices = runner.flat.read(), np.arange(batch)
    prepared = runner.batch(indices)[0]

    def steps(count: int, gating: Gating | None) -> None:
        batches = iter([(indices, None)] * count)
        seeded = Chance(0).torch("train")
        runner.train(TrainJob(start, CONFIG, batches, CONFIG.lr, seeded, transform=gating, transform_rate=CONFIG.lr))

    vector = 4 * runner.layout.size
    yield Variant("fedavg", lambda n: steps(n, None), lambda: _forward(runner, start, prepared), vector, runner)
    cut, chain = Cut.of(runner.layout, 5), chain_of(runner.flat.module)
    for name, density, ste, knapsack, paths, pool in GATES:
        design = Design(shape, len(cut), paths, pool)
        gate = design.initial(Chance(0), "c0")
        budget = Budget(density, 0.2, knapsack)
        frozen = block_scales(ready(design, gate), prepared, cut, budget)
        gated = Gated(start, gate, frozen, design, cut, budget, batch, False, runner.layout, chain)

        def train(
            count: int, budget: Budget = budget, ste: Any = ste, design: Design = design, gate: Vector = gate
        ) -> None:
            steps(count, Gating(design, cut, budget, gate, CONFIG, ste=ste, chain=chain))

        def predict(gated: Gated = gated) -> None:
            with torch.no_grad():
                gated.predict(runner.forward, prepared)

        kept = int(cut.sizes[frozen != 0].sum())
        yield Variant(name, train, predict, 4 * kept + gate.nbytes, runner)


def _forward(runner: ModelRunner, weights: Vector, inputs: torch.Tensor) -> None:
    runner.forward(weights, inputs)


def seconds(run: Callable[[], None]) -> float:
    began = time.thread_time()
    run()
    return time.thread_time() - began


def peak(run: Callable[[], None]) -> int:
    """The most bytes that torch has allocated at a time during `run`, beyond what was there before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    assert seen.profiler is not None
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def keep(folder: Path, model: str, of: str, step: float, memory: float) -> None:
    """Keep the shares of FedAvg's time and memory that a step takes."""
    kept, name = Results.read(results_file(folder, "pfedgate", size="quick")), f"{MEASURED}step-{model}"
    before = kept.runs.get(name, {}).get("extra", {})
    times = [*before.get(f"time, {of}", []), round(step, 2)]
    shares = {**before, f"time, {of}": times, f"memory, {of}": round(memory, 2)}
    when = datetime.now(UTC).date().isoformat()
    kept.add(name, {"extra": shares, "date": when, "machine": machine()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(SHAPES), default=["lenet-cifar", "leaf-cnn"])
    parser.add_argument("--batches", nargs="+", type=int, default=[32, 128, 512])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, help="the folder of kept results")
    given = parser.parse_args()
    make_deterministic()
    print("| model | batch | variant | step, ms | x | step, MB | x | inference, ms | x | inference, MB | x |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for model in given.models:
        for batch in given.batches:
            rows = list(variants(model, batch))
            count = 1 if batch >= 512 else 4
            times: dict[str, list[tuple[float, float, float]]] = {row.name: [] for row in rows}
            for row in rows:
                row.train(1)
                row.predict()
            for _ in range(given.repeats):
                for row in rows:
                    # two lengths of training: the difference of their least times is steps alone, without setting up
                    one, more = (seconds(lambda n=n, row=row: row.train(n)) for n in (1, 1 + count))  # type: ignore[misc]
                    times[row.name].append((one, more, seconds(row.predict)))
            base: list[float] = []
            for row in rows:
                one, more, inference = (min(column) for column in zip(*times[row.name], strict=True))
                step = (more - one) / count
                memory = (row.standing() + peak(lambda row=row: row.train(2))) / MEGABYTE  # type: ignore[misc]
                inferred = (row.model + peak(row.predict)) / MEGABYTE
                numbers = [1e3 * step, memory, 1e3 * inference, inferred]
                base = base or numbers
                cells = " | ".join(f"{n:.1f} | {n / b:.2f}" for n, b in zip(numbers, base, strict=True))
                print(f"| {model} | {batch} | {row.name} | {cells} |", flush=True)
                if given.results and row.name in CLAIMED:
                    of = f"density {CLAIMED[row.name]:g}, batch {batch}"
                    keep(given.results, model, of, step=numbers[0] / base[0], memory=numbers[1] / base[1])


if __name__ == "__main__":
    main()
