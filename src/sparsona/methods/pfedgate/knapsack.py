"""The 0/1 knapsack: which blocks fit a budget and are worth the most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.message import Mask

Integers = npt.NDArray[np.int64]


def greedy(values: Integers, sizes: Integers, capacity: int) -> Mask:
    """Take by value, not by value for size; what does not fit any more is left out, and the next is tried.

    Of equal values the first comes first.

    >>> greedy(np.array([5, 9, 5]), np.array([4, 3, 1]), 5)
    array([False,  True,  True])
    """
    taken = np.zeros(len(values), np.bool_)
    for block in np.argsort(-values, kind="stable"):
        if sizes[block] <= capacity:
            taken[block] = True
            capacity -= int(sizes[block])
    return taken


def exact(values: Integers, sizes: Integers, capacity: int) -> Mask:
    """The most value that fits, and of equal choices the smallest: dynamic programming over the total value.

    It takes (number of blocks) x (sum of all values) steps, whatever the sizes.

    >>> exact(np.array([5, 9, 5]), np.array([2, 5, 3]), 5)
    array([ True, False,  True])
    >>> exact(np.array([6, 5, 5]), np.array([5, 3, 2]), 5)
    array([False,  True,  True])
    """
    return _least_weight(values.astype(np.int64), sizes.astype(np.int64), capacity)


@compiled
def _least_weight(values: Integers, sizes: Integers, capacity: int) -> Mask:
    total = 0
    for v in values:
        total += v
    never = np.int64(2) ** 62
    least = np.full(total + 1, never, np.int64)
    least[0] = 0
    used = np.zeros((len(values), total + 1), np.bool_)
    for i in range(len(values) - 1, -1, -1):  # backwards: what is read off first is the first block
        for worth in range(total, values[i] - 1, -1):
            before = least[worth - values[i]]
            if values[i] > 0 and before < never and before + sizes[i] < least[worth]:
                least[worth] = before + sizes[i]
                used[i, worth] = True
    worth = total
    while least[worth] > capacity:
        worth -= 1
    taken = np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        if used[i, worth]:
            taken[i] = True
            worth -= values[i]
    return taken
