"""Every client holds the same number of classes: a subset of its own, or one subset that all share.

Personalized Heterogeneous FL with Gradient Similarity (SPFL, PLGA), Appendix B, whose "non-IID" is `own` and
whose "IID" is `shared`.
"""

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import check_clients, class_numbers, cut, even, named, shuffled_by_class


@PARTITIONS.add
def classes(samples: Samples, clients: int, chance: Chance, k: int = 2, draw: str = "own") -> dict[str, Indices]:
    """Cut each class into one equal part per client; a client takes the next unused part of its `k` classes.

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
