"""Partitions by label: each client holds few classes, or samples are assigned in the order of their labels."""

import math

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import check_clients, class_numbers, cut, even, interleaved, named, shuffled_by_class


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
