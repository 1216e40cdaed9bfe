"""Part of the samples is divided evenly, the rest in two halves of the classes: Flower's non-IID ratio.

`create_partitions` of Beutel et al.: Flower, a Friendly Federated Learning Framework, 2020, which FedPSE
(Personalized Sparsification with Element-wise Aggregation for Federated Learning, section 5.1) names as its
own. The levels of FedPSE's tables fit this partition, not the one that its Appendix C.1 describes (that one
is `sorted`).
"""

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import alike_and_sorted, cut_both, named


@PARTITIONS.add
def shift(samples: Samples, clients: int, chance: Chance, ratio: float = 1.0) -> dict[str, Indices]:
    """Divide 1 - `ratio` of the samples evenly; order the rest by label, shuffle each half, cut it evenly.

    At ratio 1 and ten classes of one size, each of an even number of clients holds five classes; with an
    odd number the client in the middle holds all ten. As in Flower the halves are halves of the samples:
    if classes differ in size, the middle class is on both sides.

    >>> labels = np.repeat(np.arange(10), 6)
    >>> parts = shift(Samples(labels, 10), 2, Chance(0))
    >>> [np.unique(labels[part]).tolist() for part in parts.values()]
    [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    """
    rng = chance.rng("partition")
    alike, rest = alike_and_sorted("shift", samples, clients, ratio, rng)
    low, high = np.split(rest, [len(rest) // 2])
    return named(cut_both(alike, np.concatenate([rng.permutation(low), rng.permutation(high)]), clients))
