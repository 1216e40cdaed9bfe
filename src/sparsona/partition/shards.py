"""The pathological partition of the FedAvg paper: a client holds a few shards of the samples sorted by label.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, section 3 (200 shards of 300 MNIST images, two for each of 100 clients).
"""

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import check_clients, class_numbers, cut, even, named, shuffled_by_class


@PARTITIONS.add
def shards(samples: Samples, clients: int, chance: Chance, each: int = 2) -> dict[str, Indices]:
    """Sort by label, cut into `each` even shards per client, and assign the shards at random.

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
