"""What sparsity costs on the client: masked against dense training, and the mask search against training.

FedSpa's Table 5 says that the search takes 8.9 % of the training time of LeNet5 on a CPU. Here: LeNet5 on 28x28 images,
600 samples, 5 epochs, batch 128, density 0.5, one thread, CPU time. Runs alternate, the least time of
each counts: what the machine does beside it only adds.

    python benchmarks/fedspa.py [REPEATS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from sparsona.bench import Bench
from sparsona.chance import Chance
from sparsona.dataset import Dataset, Share
from sparsona.local import Local
from sparsona.method import Task
from sparsona.methods.fedspa import FedSpa
from sparsona.models import MODELS
from sparsona.objective import classification
from sparsona.recipe import Recipe
from sparsona.vector import Flat

CLASSES, SAMPLES = 26, 600
MASKED_LIMIT, SEARCH_LIMIT = 1.05, 0.20


def client() -> Local:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (SAMPLES, 1, 28, 28)).astype(np.uint8)
    targets = rng.integers(0, CLASSES, SAMPLES)
    data = Dataset("random", inputs, targets, CLASSES, mean=(0.5,), std=(0.3,))
    chance = Chance(0)
    with chance.torch("initial weights"):
        flat = Flat(MODELS.get("lenet5")((1, 28, 28), CLASSES))
    task = Task(flat.layout, flat.read(), ("c0",), 100, (1, 28, 28), CLASSES, chance)
    none = np.zeros(0, np.int64)
    recipe = Recipe(epochs=5, batch=128, lr=0.01, weight_decay=5e-4, clip=10.0)
    bench = Bench(flat.module, data, classification(), chance)
    return Local("c0", 0, task, recipe, Share("c0", np.arange(SAMPLES), none, none), bench)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    torch.set_num_threads(1)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    local, method = client(), FedSpa()
    start = local.task.initial
    mask = method.first_mask(local.task, "c0")
    sparse = np.where(mask, start, np.float32(0))
    trained = local.train(sparse, mask=mask).weights
    method.next_mask(mask, trained, 0.5, local)
    rows = [
        (
            seconds(lambda: local.train(sparse)),
            seconds(lambda: local.train(sparse, mask=mask)),
            seconds(lambda: method.next_mask(mask, trained, 0.5, local)),
        )
        for _ in range(repeats)
    ]
    dense, masked, search = (min(column) for column in zip(*rows, strict=True))
    slower, share = masked / dense, search / masked
    print(f"LeNet5, {SAMPLES} samples, 5 epochs, density 0.5, {repeats} repeats")
    print(f"dense training   {dense:7.3f} s")
    print(f"masked training  {masked:7.3f} s   {slower:.3f} x dense     (limit {MASKED_LIMIT:.2f})")
    print(f"mask search      {search:7.3f} s   {share:.3f} of training (limit {SEARCH_LIMIT:.2f}; paper 0.089)")
    if slower > MASKED_LIMIT or share > SEARCH_LIMIT:
        sys.exit("over the limit")


if __name__ == "__main__":
    main()
