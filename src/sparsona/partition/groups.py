"""The clients that the data come from: writers, hospitals, one file each."""

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import by_owner, client_names


@PARTITIONS.add
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
