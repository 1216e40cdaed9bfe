"""QSGD's quantisation: one norm per bucket, and per entry a whole number of steps, rounded at random."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.message import Vector

Steps: TypeAlias = npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Quantised:
    """Entry i of a bucket is norm * steps_i / levels. A bucket is at most `bucket` entries of one tensor (0: all)."""

    norms: Vector
    steps: Steps


def buckets(sizes: Sequence[int], bucket: int) -> Iterator[slice]:
    """
    >>> [(b.start, b.stop) for b in buckets((5, 2), 3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    start = 0
    for size in sizes:
        for first in range(start, start + size, bucket or max(size, 1)):
            yield slice(first, min(first + (bucket or size), start + size))
        start += size


def quantise(vector: Vector, sizes: Sequence[int], levels: int, bucket: int, rng: np.random.Generator) -> Quantised:
    """Round a vector to `levels` steps of each bucket's Euclidean norm, at random without bias.

    >>> q = quantise(np.array([3, 4], np.float32), (2,), 5, 0, np.random.default_rng(0))
    >>> q.norms, q.steps
    (array([5.], dtype=float32), array([3, 4], dtype=int16))
    """
    norms, steps = [], np.zeros(len(vector), np.int16)
    for here in buckets(sizes, bucket):
        part = vector[here].astype(np.float64)
        norm = np.float32(np.sqrt(np.square(part).sum()))
        norms.append(norm)
        if norm > 0:
            exact = np.minimum(levels * np.abs(part) / np.float64(norm), levels)
            low = np.floor(exact)
            steps[here] = np.sign(part) * (low + (rng.random(len(part)) < exact - low))
    return Quantised(np.array(norms, np.float32), steps)


def restored(quantised: Quantised, sizes: Sequence[int], levels: int, bucket: int) -> Vector:
    """Restore the vector at the receiver.

    >>> restored(Quantised(np.array([5], np.float32), np.array([3, -4], np.int16)), (2,), 5, 0)
    array([ 3., -4.], dtype=float32)
    """
    spans = list(buckets(sizes, bucket))
    if len(spans) != len(quantised.norms) or len(quantised.steps) != sum(sizes):
        raise WireError(
            f"{len(quantised.norms)} norms and {len(quantised.steps)} steps do not fit {sum(sizes)} entries"
        )
    scale = np.repeat(quantised.norms / np.float32(levels), [s.stop - s.start for s in spans])
    out: Vector = quantised.steps.astype(np.float32) * scale
    return out
