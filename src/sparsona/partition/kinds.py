"""The kinds of partition: at random, by natural groups, by label, and by the Dirichlet distribution."""

import math
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import (
    by_owner,
    check_clients,
    class_numbers,
    client_names,
    cut,
    even,
    interleaved,
    named,
    ranks,
    shuffled_by_class,
)


@PARTITIONS.named("iid")
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


@PARTITIONS.named("groups")
def groups(samples: Samples, clients: int, chance: Chance, fewest: int = 1) -> dict[str, Indices]:
    """Make one client per natural group of at least `fewest` samples, under the group's name.

    `clients` 0 takes all groups; a smaller number draws that many at random. A sample with a negative group is unused.

    >>> hospitals = Samples(np.zeros(5), 0, np.array([0, 1, 1, 0, 2]), ("basel", "long-beach", "cleveland"))
    >>> {name: part.tolist() for name, part in groups(hospitals, 0, Chance(0)).items()}
    {'basel': [0, 3], 'long-beach': [1, 2], 'cleveland': [4]}
    """
    if samples.groups is None:
        raise InputError("partition 'groups': these data have no natural groups; use iid or another partition")
    grouped = np.flatnonzero(samples.groups >= 0)
    numbers, owner, sizes = np.unique(samples.groups[grouped], return_inverse=True, return_counts=True)
    taken = np.flatnonzero(sizes >= fewest)
    kind = "natural groups" if fewest <= 1 else f"natural groups of at least {fewest} samples"
    if not len(taken):
        problem = f"partition 'groups': the data have no {kind}"
        raise InputError(f"{problem}; the largest group has {max(sizes, default=0)}")
    if not 0 <= clients <= len(taken):
        problem = f"{clients} clients asked for, but the data have {len(taken)} {kind}"
        raise InputError(f"{problem}; ask for at most {len(taken)} clients, or 0 for all")
    if 0 < clients < len(taken):
        taken = np.sort(chance.rng("partition").choice(taken, clients, replace=False))
    names = samples.group_names or client_names(int(numbers.max()) + 1)
    parts = by_owner(grouped, owner, len(numbers))
    found = {names[numbers[i]]: parts[i].astype(np.int64) for i in taken}
    if len(found) < len(taken):
        raise InputError("partition 'groups': two groups of the data have the same name; give each its own")
    return found


@PARTITIONS.named("classes")
def classes(samples: Samples, clients: int, chance: Chance, k: int = 2, draw: str = "own") -> dict[str, Indices]:
    """Cut each class into one equal part per client; a client takes the next unused part of its `k` classes.

    Personalized Heterogeneous FL with Gradient Similarity (SPFL, PLGA), Appendix B, whose "non-IID" is `own` and whose
    "IID" is `shared`.

    With `draw` own each client draws its classes, with shared all have the same random ones. Parts that no client
    takes stay unused.

    >>> labels = np.repeat(np.arange(10), 30)
    >>> parts = classes(Samples(labels, 10), 3, Chance(0), k=6)
    >>> [(len(part), len(np.unique(labels[part]))) for part in parts.values()]
    [(60, 6), (60, 6), (60, 6)]
    """
    check_clients(samples, clients)
    of = class_numbers("classes", samples)
    sizes = np.bincount(of)
    if draw not in ("own", "shared"):
        raise InputError(f"partition 'classes': write classes:{k}:own or classes:{k}:shared, not {draw!r}")
    if not 1 <= k <= len(sizes):
        problem = f"partition 'classes': a client cannot hold {k} of {len(sizes)} classes"
        raise InputError(f"{problem}; ask for 1 to {len(sizes)}")
    if sizes.min() < clients:
        label, size = np.unique(samples.labels)[sizes.argmin()], sizes.min()
        problem = f"partition 'classes' cannot cut class {label} with its {size} samples for {clients} clients"
        raise InputError(f"{problem}; ask for at most {size} clients, or use dirichlet-classes")
    rng = chance.rng("partition")
    members = cut(shuffled_by_class(of, rng), sizes)
    unused = [iter(cut(own, even(len(own), clients))) for own in members]
    shared = rng.choice(len(sizes), k, replace=False)
    parts = []
    for _ in range(clients):
        mine = shared if draw == "shared" else rng.choice(len(sizes), k, replace=False)
        parts.append(np.concatenate([next(unused[c]) for c in mine]))
    return named(parts)


@PARTITIONS.named("shards")
def shards(samples: Samples, clients: int, chance: Chance, each: int = 2) -> dict[str, Indices]:
    """Sort by label, cut into `each` even shards per client, and assign the shards at random.

    The pathological partition of McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of
    Deep Networks from Decentralized Data, AISTATS 2017, section 3 (200 shards of 300 MNIST images, two for each of 100
    clients).

    >>> labels = np.repeat(np.arange(10), 20)
    >>> parts = shards(Samples(labels, 10), 10, Chance(0))
    >>> all(len(part) == 20 and len(np.unique(labels[part])) <= 2 for part in parts.values())
    True
    """
    check_clients(samples, clients)
    classes = class_numbers("shards", samples)
    if each < 1:
        raise InputError(f"partition 'shards': a client holds at least 1 shard, not {each}")
    if each * clients > len(classes):
        raise InputError(
            f"partition 'shards' cannot cut {len(classes)} samples into {each * clients} shards; "
            "ask for fewer clients or fewer shards a client"
        )
    rng = chance.rng("partition")
    pieces = cut(shuffled_by_class(classes, rng), even(len(classes), each * clients))
    hands = rng.permutation(each * clients).reshape(clients, each)
    return named([np.concatenate([pieces[i] for i in hand]) for hand in hands])


@PARTITIONS.named("shift")
def shift(samples: Samples, clients: int, chance: Chance, ratio: float = 1.0) -> dict[str, Indices]:
    """Divide 1 - `ratio` of the samples evenly; order the rest by label, shuffle each half, cut it evenly.

    `create_partitions` of Beutel et al.: Flower, a Friendly Federated Learning Framework, 2020, which FedPSE
    (Personalized Sparsification with Element-wise Aggregation for Federated Learning, section 5.1) names as its own.
    The levels of FedPSE's tables fit this partition, not the one that its Appendix C.1 describes (`sorted`).

    At ratio 1 and ten classes of one size, each of an even number of clients holds five classes; with an
    odd number the client in the middle holds all ten. As in Flower the halves are halves of the samples:
    if classes differ in size, the middle class is on both sides.

    >>> labels = np.repeat(np.arange(10), 6)
    >>> parts = shift(Samples(labels, 10), 2, Chance(0))
    >>> [np.unique(labels[part]).tolist() for part in parts.values()]
    [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    """
    rng = chance.rng("partition")
    alike, rest = _alike_and_sorted("shift", samples, clients, ratio, rng)
    low, high = np.split(rest, [len(rest) // 2])
    return named(_cut_both(alike, np.concatenate([rng.permutation(low), rng.permutation(high)]), clients))


@PARTITIONS.named("sorted")
def sorted_by_label(samples: Samples, clients: int, chance: Chance, ratio: float = 1.0) -> dict[str, Indices]:
    """Divide 1 - `ratio` of the samples at random and evenly; cut the rest in the order of the labels.

    FedPSE's Appendix C.1 as it is written. At ratio 1 and as many clients as classes each client holds one class, and a
    constant answer is always right: look at `local` before you believe a number that was measured on it.

    The paper does not say which samples are in the even part; here it has the class proportions of the whole.

    >>> labels = np.repeat(np.arange(3), 4)
    >>> parts = sorted_by_label(Samples(labels, 3), 3, Chance(0))
    >>> [labels[part].tolist() for part in parts.values()]
    [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]]
    """
    rng = chance.rng("partition")
    alike, rest = _alike_and_sorted("sorted", samples, clients, ratio, rng)
    return named(_cut_both(rng.permutation(alike), rest, clients))


def _alike_and_sorted(
    partition: str, samples: Samples, clients: int, ratio: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return the share 1 - `ratio` with the class proportions of the whole, and the other samples sorted by label."""
    check_clients(samples, clients)
    if not 0 <= ratio <= 1:
        raise InputError(f"partition {partition!r}: the non-IID ratio must be from 0 to 1, not {ratio}")
    classes = class_numbers(partition, samples)
    alike, rest = np.split(interleaved(classes, rng), [math.floor((1 - ratio) * len(classes) + 0.5)])
    return alike, rest[np.argsort(classes[rest], kind="stable")]


def _cut_both(alike: Indices, skewed: Indices, clients: int) -> list[Indices]:
    """Return a piece of `alike` and one of `skewed` per client, so that the sums differ by one at most."""
    first = even(len(alike), clients)
    second = even(len(alike) + len(skewed), clients) - first
    pairs = zip(cut(alike, first), cut(skewed, second), strict=True)
    return [np.concatenate(pair) for pair in pairs]


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
