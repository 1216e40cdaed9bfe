"""Partitions by the Dirichlet distribution: of classes over clients, of each client's classes, and of sizes."""

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import by_owner, check_clients, class_numbers, cut, named, ranks, shuffled_by_class

TRIES = 20


def _check(partition: str, alpha: float) -> None:
    """Refuse a concentration that is not positive or so large that numpy's sampler overflows."""
    if not 0 < alpha <= 1e9:
        raise InputError(f"partition {partition!r}: alpha must be above 0 and at most 1e9, not {alpha}")


@PARTITIONS.named("dirichlet-classes")
def dirichlet_classes(samples: Samples, clients: int, chance: Chance, alpha: float = 0.3) -> dict[str, Indices]:
    """For each class: proportions over the clients from Dir(`alpha`), then a multinomial draw of the counts.

    Sizes differ, too. Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification, 2019, in the form of FedEM (Marfoq et al., NeurIPS 2021), which pFedGate (Chen et al., ICML 2023)
    uses with alpha 0.4.

    If a client gets fewer than two samples, all is drawn again, at most twenty times; if that does not help (small
    `alpha`, many clients), such clients get single samples of the largest client.

    >>> labels = np.repeat(np.arange(10), 50)
    >>> parts = dirichlet_classes(Samples(labels, 10), 5, Chance(0), alpha=0.3)
    >>> sum(len(part) for part in parts.values())
    500
    """
    check_clients(samples, clients)
    _check("dirichlet-classes", alpha)
    classes = class_numbers("dirichlet-classes", samples)
    rng = chance.rng("partition")
    sizes = np.bincount(classes)
    fewest = min(2, len(classes) // clients)
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


@PARTITIONS.named("dirichlet-clients")
def dirichlet_clients(samples: Samples, clients: int, chance: Chance, alpha: float = 0.3) -> dict[str, Indices]:
    """Each client draws labels from its own Dir(`alpha`) up to its quota; a used-up class is drawn again.

    Clients of one size, in the way of the authors' code of Achieving Personalized Federated Learning with Sparse Local
    Models (FedSpa), Appendix B.1 (and of FedDyn: Acar et al., ICLR 2021).

    The clients draw in random turns, so that no client gets only the others' leftovers. The quota is the same for
    all: fewer than `clients` samples stay unused.

    >>> parts = dirichlet_clients(Samples(np.repeat(np.arange(10), 11), 10), 4, Chance(0), alpha=0.1)
    >>> [len(part) for part in parts.values()]
    [27, 27, 27, 27]
    """
    check_clients(samples, clients)
    _check("dirichlet-clients", alpha)
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


@PARTITIONS.named("quantity")
def quantity(samples: Samples, clients: int, chance: Chance, alpha: float = 0.5) -> dict[str, Indices]:
    """Draw sizes from Dir(`alpha`), on top of ten samples per client; the samples are random.

    The quantity skew of Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos, ICDE 2022.

    With fewer than twenty samples per client on average, each client gets at least half the average, and two if
    possible.

    >>> parts = quantity(Samples(np.zeros(1000), 0), 4, Chance(0))
    >>> sum(len(part) for part in parts.values()), min(len(part) for part in parts.values()) >= 10
    (1000, True)
    """
    check_clients(samples, clients)
    _check("quantity", alpha)
    rng = chance.rng("partition")
    total = len(samples.labels)
    sure = max(min(2, total // clients), min(10, total // (2 * clients)))
    free = total - sure * clients
    ends = np.floor(np.cumsum(rng.dirichlet(np.full(clients, alpha))) * free + 0.5).astype(np.int64)
    ends[-1] = free
    sizes: Indices = sure + np.diff(ends, prepend=0)
    return named(cut(rng.permutation(total), sizes))
