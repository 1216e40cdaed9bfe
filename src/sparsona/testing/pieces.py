"""The checks of every model and of every partition."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import ContractError
from sparsona.training.runner import channels_last
from sparsona.training.vector import FlatModule


def check_model(build: Callable[..., nn.Module], shape: tuple[int, ...], outputs: int = 10, **options: Any) -> None:
    """Check that a module fits a layout, gives one row of outputs per sample, and follows the seed."""
    flats = []
    for _ in range(2):
        with Chance(5).torch("initial weights"):
            flats.append(FlatModule(build(shape, outputs, **options)))
    if not np.array_equal(flats[0].read(), flats[1].read()):
        raise ContractError("the same seed must give the same initial weights")
    flat = flats[0]
    weights = flat.read()
    flat.load(weights * 2)
    if not np.array_equal(flat.read(), weights * 2):
        raise ContractError("weights do not survive being loaded and read")
    flat.load(weights)
    tokens = len(shape) == 1 and any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in flat.module.modules())
    inputs = (
        torch.ones(3, *shape, dtype=torch.int64)
        if tokens
        else torch.linspace(-1, 1, 3).reshape(3, *(1,) * len(shape)).expand(3, *shape)
    )
    flat.module.eval()
    answer = flat.module(inputs)
    if answer.shape != (3, outputs):
        raise ContractError(f"3 samples must give outputs of shape (3, {outputs}), not {tuple(answer.shape)}")
    if len(shape) == 3 and not torch.allclose(answer, flat.module(channels_last(inputs)), atol=1e-4):
        raise ContractError("the model answers differently when its input is in channels_last memory")
    flat.module.train()
    gradient = flat.gradient
    torch.autograd.backward(flat.module(inputs).sum())
    if not torch.isfinite(gradient).all():
        raise ContractError("the gradient is not finite")


def check_partitioner(partition: Callable[..., Mapping[str, Indices]], **options: Any) -> None:
    """Check: each sample at most once, no client without samples, the same result per seed, others with other seeds."""
    labels = np.repeat(np.arange(6), 50)
    samples = Samples(labels, 6, np.arange(300) % 5, tuple("abcde"))
    parts = partition(samples, 5, Chance(3), **options)
    if len(parts) != 5:
        raise ContractError(f"5 clients were asked for, {len(parts)} were made")
    for name, indices in parts.items():
        if not isinstance(name, str) or indices.dtype != np.int64 or indices.ndim != 1 or not len(indices):
            raise ContractError(f"client {name!r} must have a name and at least one int64 index")
    together = np.concatenate(list(parts.values()))
    if len(np.unique(together)) != len(together) or together.min() < 0 or together.max() >= len(labels):
        raise ContractError("a sample belongs to two clients, or does not exist")
    other = RecordingChance(4)
    again, others = (partition(samples, 5, chance, **options) for chance in (Chance(3), other))
    dealt, same, new = ([(name, part.tolist()) for name, part in one.items()] for one in (parts, again, others))
    if dealt != same:
        raise ContractError("the same seed must deal the same way")
    if dealt == new and other.asked:
        raise ContractError("another seed must deal another way")


@dataclass(frozen=True)
class RecordingChance(Chance):
    """Chance that records its uses: a partition that draws nothing may ignore the seed."""

    asked: list[str] = dataclasses.field(default_factory=list)

    def rng(self, purpose: str, *, round: int = 0, client: str = "", layer: int = 0) -> np.random.Generator:
        """Return the usual generator and record its purpose."""
        self.asked.append(purpose)
        return super().rng(purpose, round=round, client=client, layer=layer)
