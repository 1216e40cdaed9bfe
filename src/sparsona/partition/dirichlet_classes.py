"""Every class is split over the clients by proportions from a Dirichlet distribution; sizes differ, too.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
2019, in the form of FedEM (Marfoq et al., NeurIPS 2021), which pFedGate (Chen et al., ICML 2023) uses with
alpha 0.4.
"""

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import (
    by_owner,
    check_alpha,
    check_clients,
    class_numbers,
    named,
    shuffled_by_class,
)

TRIES = 20
FEWEST = 2  # one sample to train on and one to test on


@PARTITIONS.add
def dirichlet_classes(samples: Samples, clients: int, chance: Chance, alpha: float = 0.3) -> dict[str, Indices]:
    """For each class: proportions over the clients from Dir(`alpha`), then a multinomial draw of the counts.

    If a client gets fewer than two samples, all is drawn again, at most twenty times; if that does not help (small
    `alpha`, many clients), such clients get single samples of the largest client.

    >>> labels = np.repeat(np.arange(10), 50)
    >>> parts = dirichlet_classes(Samples(labels, 10), 5, Chance(0), alpha=0.3)
    >>> sum(len(part) for part in parts.values())
    500
    """
    check_clients(samples, clients)
    check_alpha("dirichlet-classes", alpha)
    classes = class_numbers("dirichlet-classes", samples)
    rng = chance.rng("partition")
    sizes = np.bincount(classes)
    fewest = min(FEWEST, len(classes) // clients)
    best = _counts(sizes, clients, alpha, rng)
    for _ in range(TRIES - 1):
        if best.sum(0).min() >= fewest:
            break
        other = _counts(sizes, clients, alpha, rng)
        best = max(best, other, key=lambda counts: int((counts.sum(0) >= fewest).sum()))
    owner = np.concatenate([np.repeat(np.arange(clients), counts) for counts in best])
    _top_up(owner, best.sum(0), fewest, rng)
    return named(by_owner(shuffled_by_class(classes, rng), owner, clients))


def _counts(sizes: Indices, clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    """Return the number of samples per class (row) and client (column)."""
    shares = rng.dirichlet(np.full(clients, alpha), size=len(sizes))
    return rng.multinomial(sizes, shares)


def _top_up(owner: Indices, totals: Indices, fewest: int, rng: np.random.Generator) -> None:
    """Move single samples of the largest client to clients with too few, in place."""
    while totals.min() < fewest:
        poor, rich = int(totals.argmin()), int(totals.argmax())
        owner[rng.choice(np.flatnonzero(owner == rich))] = poor
        totals[poor] += 1
        totals[rich] -= 1
