"""Round a sparse update to few different values, of a few bits each; error feedback keeps the difference.

- `pow2`: the nearest power of two, sign kept. It needs no scale, and the error is at most a third of the value.
- `levels:N`: each tensor's magnitudes are sorted into N groups of the same size, and each becomes its group's mean.
- `ternary`: one magnitude per tensor, their mean; this is `levels:1`, as in sparse ternary compression.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from sparsona.message import Sparse, Vector

Values: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^(float32|pow2|ternary|levels:[1-9][0-9]?)$",
        description="rounding of an update's values: float32 (none), pow2, levels:N or ternary",
    ),
]

MANTISSA, HALF, LARGEST = np.uint32(0x7FFFFF), np.uint32(0x400000), np.uint32(0x7F000000)


def rounded(update: Sparse, sizes: Sequence[int], values: str) -> Sparse:
    """Return the update with rounded values; `sizes` are the lengths of the tensors.

    >>> update = Sparse(6, [0, 1, 3, 4], [1, -1.4, 3, 5])
    >>> rounded(update, (3, 3), "pow2").values, rounded(update, (3, 3), "ternary").values
    (array([ 1., -1.,  4.,  4.], dtype=float32), array([ 1.2, -1.2,  4. ,  4. ], dtype=float32))
    """
    if values == "float32" or not len(update.values):
        return update
    if values == "pow2":
        return replace(update, values=powers_of_two(update.values))
    count = 1 if values == "ternary" else int(values.removeprefix("levels:"))
    cuts = np.searchsorted(update.indices, np.cumsum(sizes)[:-1])
    return replace(update, values=np.concatenate([levels(part, count) for part in np.split(update.values, cuts)]))


def powers_of_two(values: Vector) -> Vector:
    """Round each value to the nearest power of two with its sign; ties go up, and 0 stays 0.

    >>> powers_of_two(np.float32([1, 1.4, -1.5, 3, 0, 0.3]))
    array([ 1.  ,  1.  , -2.  ,  4.  ,  0.  ,  0.25], dtype=float32)
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    sign, magnitude = bits & np.uint32(1 << 31), bits & np.uint32((1 << 31) - 1)
    near = np.minimum(magnitude + HALF & ~MANTISSA, LARGEST)
    out: Vector = np.where(near, sign | near, np.uint32(0)).view(np.float32)
    return out


def levels(values: Vector, count: int) -> Vector:
    """Round values to `count` magnitudes: each of `count` groups of equal size gets its mean.

    >>> levels(np.float32([1, -3, 10, 12]), 2)
    array([ 2., -2., 11., 11.], dtype=float32)
    """
    out, order = np.empty_like(values), np.argsort(np.abs(values), kind="stable")
    for group in np.array_split(order, min(count, max(1, len(values)))):
        mean = np.abs(values[group]).mean(dtype=np.float64) if len(group) else 0.0
        out[group] = np.copysign(np.float32(mean), values[group])
    return out
