"""Part of the samples is divided evenly, the rest is sorted by label and cut.

FedPSE: Personalized Sparsification with Element-wise Aggregation for Federated Learning, Appendix C.1 as it
is written. At ratio 1 and as many clients as classes each client holds one class, and a constant answer is
always right: look at `local` before you believe a number that was measured on it. (FedPSE's tables were
made with `shift`.)
"""

from sparsona.chance import Chance
from sparsona.data.dataset import Indices, Samples
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import alike_and_sorted, cut_both, named


@PARTITIONS.add
def sorted_by_label(samples: Samples, clients: int, chance: Chance, ratio: float = 1.0) -> dict[str, Indices]:
    """Divide 1 - `ratio` of the samples at random and evenly; cut the rest in the order of the labels.

    The paper does not say which samples are in the even part; here it has the class proportions of the whole.

    >>> import numpy as np
    >>> labels = np.repeat(np.arange(3), 4)
    >>> parts = sorted_by_label(Samples(labels, 3), 3, Chance(0))
    >>> [labels[part].tolist() for part in parts.values()]
    [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]]
    """
    rng = chance.rng("partition")
    alike, rest = alike_and_sorted("sorted", samples, clients, ratio, rng)
    return named(cut_both(rng.permutation(alike), rest, clients))
