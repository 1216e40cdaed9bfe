"""What sparsity costs on the client: masked against dense training, and the mask search against training.

FedSpa's Table 5 says that the search takes 8.9 % of the training time of LeNet5 on a CPU. Here: LeNet5 on 28x28 images,
600 samples, batch 128, density 0.5, one thread, CPU time, in processes like the pool's. An epoch dense, an epoch masked
and a search take turns in random order; medians. A round has five epochs and one search.

    python benchmarks/fedspa.py [PROCESSES]
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import ClientSplit, Dataset
from sparsona.engines.child import ENVIRONMENT
from sparsona.method import Task
from sparsona.methods.fedspa import FedSpa
from sparsona.models import MODELS
from sparsona.training.config import TrainConfig
from sparsona.training.determinism import make_deterministic
from sparsona.training.local import Local
from sparsona.training.objective import classification
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule

CLASSES, SAMPLES, EPOCHS, REPEATS = 26, 600, 5, 15
MASKED_LIMIT, SEARCH_LIMIT = 1.05, 0.20


def client() -> Local:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (SAMPLES, 1, 28, 28)).astype(np.uint8)
    targets = rng.integers(0, CLASSES, SAMPLES)
    data = Dataset("random", inputs, targets, CLASSES, mean=(0.5,), std=(0.3,))
    chance = Chance(0)
    with chance.torch("initial weights"):
        flat = FlatModule(MODELS.get("lenet5")((1, 28, 28), CLASSES))
    task = Task(flat.layout, flat.read(), ("c0",), 100, (1, 28, 28), CLASSES, chance)
    none = np.zeros(0, np.int64)
    config = TrainConfig(epochs=1, batch=128, lr=0.01, weight_decay=5e-4, clip=10.0)
    runner = ModelRunner(flat.module, data, classification(), chance)
    return Local("c0", 0, task, config, ClientSplit("c0", np.arange(SAMPLES), none, none), runner)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(repeats: int) -> tuple[float, float, float]:
    """Median seconds of an epoch dense, an epoch masked, and a search."""
    make_deterministic()
    local, method = client(), FedSpa()
    start = local.task.initial
    mask = method.first_mask(local.task, "c0")
    sparse = np.where(mask, start, np.float32(0))
    trained = local.train(sparse, mask=mask).weights
    works: list[Callable[[], object]] = [
        lambda: local.train(sparse),
        lambda: local.train(sparse, mask=mask),
        lambda: method.next_mask(mask, trained, 0.5, local),
    ]
    taken: list[list[float]] = [[], [], []]
    order = np.random.default_rng(0)
    for number in range(repeats + 1):
        for which in order.permutation(len(works)):
            took = seconds(works[which])
            if number:
                taken[which].append(took)
    dense, masked, search = (statistics.median(column) for column in taken)
    return dense, masked, search


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    os.environ.update(ENVIRONMENT)
    found = []
    for _ in range(processes):
        with multiprocessing.get_context("spawn").Pool(1) as process:
            found.append(process.apply(measure, (REPEATS,)))
    slower = sorted(masked / dense for dense, masked, _ in found)
    shares = sorted(search / (EPOCHS * masked) for _, masked, search in found)
    print(f"LeNet5, {SAMPLES} samples, density 0.5, {processes} processes; the median and the range of")
    for what, ratios, limit in (("masked / dense", slower, MASKED_LIMIT), ("search / 5 epochs", shares, SEARCH_LIMIT)):
        print(f"{what:<18} {statistics.median(ratios):.3f}  {ratios[0]:.3f} .. {ratios[-1]:.3f}  (limit {limit:.2f})")
    if statistics.median(slower) > MASKED_LIMIT or statistics.median(shares) > SEARCH_LIMIT:
        sys.exit("over the limit")


if __name__ == "__main__":
    main()
