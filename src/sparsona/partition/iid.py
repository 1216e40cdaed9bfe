"""Identically distributed clients: the samples are shuffled and cut evenly."""

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import check_clients, cut, even, named


@PARTITIONS.add
def iid(samples: Samples, clients: int, chance: Chance) -> dict[str, Indices]:
    """Shuffle, and cut into parts whose sizes differ by one at most.

    >>> import numpy as np
    >>> parts = iid(Samples(np.zeros(5, np.int64), 1), 2, Chance(0))
    >>> {name: len(part) for name, part in parts.items()}
    {'c0': 3, 'c1': 2}
    """
    check_clients(samples, clients)
    total = len(samples.labels)
    return named(cut(chance.rng("partition").permutation(total), even(total, clients)))
