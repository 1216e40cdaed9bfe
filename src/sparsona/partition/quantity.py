"""Clients of very different sizes, all drawn from the same distribution.

The quantity skew of Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos, ICDE 2022.
"""

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import check_alpha, check_clients, cut, named

FEWEST = 10


@PARTITIONS.add
def quantity(samples: Samples, clients: int, chance: Chance, alpha: float = 0.5) -> dict[str, Indices]:
    """Draw sizes from Dir(`alpha`), on top of ten samples per client; the samples are random.

    With fewer than twenty samples per client on average, each client gets at least half the average, and two if
    possible.

    >>> parts = quantity(Samples(np.zeros(1000), 0), 4, Chance(0))
    >>> sum(len(part) for part in parts.values()), min(len(part) for part in parts.values()) >= 10
    (1000, True)
    """
    check_clients(samples, clients)
    check_alpha("quantity", alpha)
    rng = chance.rng("partition")
    total = len(samples.labels)
    sure = max(min(2, total // clients), min(FEWEST, total // (2 * clients)))
    free = total - sure * clients
    ends = np.floor(np.cumsum(rng.dirichlet(np.full(clients, alpha))) * free + 0.5).astype(np.int64)
    ends[-1] = free
    sizes: Indices = sure + np.diff(ends, prepend=0)
    return named(cut(rng.permutation(total), sizes))
