"""Clients of one size, each with class proportions of its own from a Dirichlet prior.

Achieving Personalized Federated Learning with Sparse Local Models (FedSpa), Appendix B.1, in the way of the
authors' code (and of FedDyn: Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021).
"""

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import (
    by_owner,
    check_alpha,
    check_clients,
    class_numbers,
    named,
    ranks,
    shuffled_by_class,
)


@PARTITIONS.add
def dirichlet_clients(samples: Samples, clients: int, chance: Chance, alpha: float = 0.3) -> dict[str, Indices]:
    """Each client draws labels from its own Dir(`alpha`) up to its quota; a used-up class is drawn again.

    The clients draw in random turns, so that no client gets only the others' leftovers. The quota is the same for
    all: fewer than `clients` samples stay unused.

    >>> parts = dirichlet_clients(Samples(np.repeat(np.arange(10), 11), 10), 4, Chance(0), alpha=0.1)
    >>> [len(part) for part in parts.values()]
    [27, 27, 27, 27]
    """
    check_clients(samples, clients)
    check_alpha("dirichlet-clients", alpha)
    classes = class_numbers("dirichlet-clients", samples)
    rng = chance.rng("partition")
    sizes = np.bincount(classes)
    prior = rng.dirichlet(np.full(len(sizes), alpha), size=clients)
    turns = rng.permutation(np.repeat(np.arange(clients), len(classes) // clients))
    drawn = _draw(prior, turns, sizes, rng)
    # The draws of a class take its samples in their shuffled order.
    counts = np.bincount(drawn, minlength=len(sizes))
    first = np.repeat(np.cumsum(sizes) - sizes, counts)
    chosen = shuffled_by_class(classes, rng)[first + ranks(counts)]
    return named(by_owner(chosen, turns[np.argsort(drawn, kind="stable")], clients))


def _draw(prior: npt.NDArray[np.float64], turns: Indices, sizes: Indices, rng: np.random.Generator) -> Indices:
    """Return the class that the client of each turn draws.

    Drawing again until a class has samples left equals drawing from the prior without the used-up classes. This form
    also ends if a client's prior has nothing left: that client takes any class.
    """
    left: list[int] = sizes.tolist()
    ladders = _ladders(prior, sizes)
    drawn = []
    for client, number in zip(turns.tolist(), rng.random(len(turns)).tolist(), strict=True):
        c = bisect_right(ladders[client], number)
        drawn.append(c)
        left[c] -= 1
        if not left[c] and any(left):
            ladders = _ladders(prior, np.array(left))
    return np.array(drawn, np.int64)


def _ladders(prior: npt.NDArray[np.float64], left: Indices) -> list[list[float]]:
    """Return per client the cumulative probabilities of the classes with samples left, up to exactly 1."""
    mass = np.where(left > 0, prior, 0.0)
    mass[mass.sum(1) == 0] = left
    sums = np.cumsum(mass, axis=1)
    rows: list[list[float]] = (sums / sums[:, -1:]).tolist()
    return rows
