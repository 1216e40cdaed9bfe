"""The checks of every partition."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import ContractError


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
    if not _same_parts(parts, partition(samples, 5, Chance(3), **options)):
        raise ContractError("the same seed must deal the same way")
    other = RecordingChance(4)
    if _same_parts(parts, partition(samples, 5, other, **options)) and other.asked:
        raise ContractError("another seed must deal another way")


@dataclass(frozen=True)
class RecordingChance(Chance):
    """Chance that records its uses: a partition that draws nothing may ignore the seed."""

    asked: list[str] = dataclasses.field(default_factory=list)

    def rng(self, purpose: str, *, round: int = 0, client: str = "", layer: int = 0) -> np.random.Generator:
        """Return the usual generator and record its purpose."""
        self.asked.append(purpose)
        return super().rng(purpose, round=round, client=client, layer=layer)


def _same_parts(one: Mapping[str, Indices], other: Mapping[str, Indices]) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[name], other[name]) for name in one)
