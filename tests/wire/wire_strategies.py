"""Strategies for everything that may travel: vectors, positions, and parts of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from sparsona.message import NUMBER_TYPES, Blocks, Levels, Part, Positions, Sparse, Ternary
from sparsona.wire.kinds import number_of

EXTREME = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
EXTREME += [pattern | 1 << 31 for pattern in EXTREME]
"""Zero, denormals, one, the largest, infinity, signalling and quiet NaN, of either sign."""

patterns = st.integers(0, 2**32 - 1) | st.sampled_from(EXTREME)
sizes = st.integers(0, 40) | st.integers(0, 3000)


@st.composite
def vectors(draw: st.DrawFn, size: int | None = None) -> npt.NDArray[np.float32]:
    """Bits drawn one by one, or a seed's worth of weights, updates, ties, constants and noise."""
    count = draw(sizes) if size is None else size
    if draw(st.booleans()) and count <= 40:
        return np.array(draw(st.lists(patterns, min_size=count, max_size=count)), np.uint32).view(np.float32)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = rng.normal(0, 10.0 ** rng.integers(-8, 3), count).astype(np.float32)
    kind = draw(st.sampled_from(["weights", "update", "ties", "constant", "noise", "extreme", "mixed", "grid"]))
    if kind == "update":
        return (weights + weights[::-1] * np.float32(0.001)) - weights
    if kind == "ties":
        return rng.choice(np.unique(np.append(weights[:200], np.float32(0))), count)
    if kind == "constant":
        return np.full(count, weights[0] if count else 0, np.float32)
    if kind == "noise":
        return rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    if kind == "extreme":
        return rng.choice(np.array(EXTREME, np.uint32), count).view(np.float32)
    if kind == "mixed":
        odd = rng.choice(np.array(EXTREME, np.uint32), count).view(np.float32)
        return np.where(rng.random(count) < 0.05, odd, weights)
    if kind == "grid":
        return np.round(weights * 8) / np.float32(8)
    return weights


@st.composite
def index_sets(draw: st.DrawFn, size: int) -> npt.NDArray[np.int64]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["none", "one", "all", "but one", "scattered", "clustered", "rows"]))
    mask = np.zeros(size, np.bool_)
    if kind in ("one", "but one") and size:
        mask[rng.integers(size)] = True
    elif kind == "all":
        mask[:] = True
    elif kind == "scattered":
        mask = rng.random(size) < rng.choice([0.002, 0.02, 0.1, 0.4, 0.5, 0.9, 0.99])
    elif kind == "clustered":
        mask[size // 3 : size // 2] = rng.random(size // 2 - size // 3) < 0.7
    elif kind == "rows":
        width = int(rng.integers(1, 60))
        column, row = rng.random(width) < 0.3, rng.random(size // width + 1) < 0.3
        mask = column[np.arange(size) % width] & row[np.arange(size) // width]
    return np.flatnonzero(~mask if kind == "but one" else mask)


@st.composite
def tensor_sizes(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.sampled_from([0, 1, 2, 7, 30, 400, 1024, 1200]), max_size=6)))


@st.composite
def numbers(draw: st.DrawFn, name: str) -> npt.NDArray[np.generic]:
    """An array of the type `name`."""
    if name == "float32" and draw(st.booleans()):
        return draw(vectors())
    dtype: np.dtype[Any] = np.dtype(name)
    count = draw(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if dtype.kind == "f":
        return rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    info = np.iinfo(dtype)
    span = draw(st.sampled_from([(0, 1), (-2, 3), (0, 100), (info.min, info.max)]))
    low, high = max(span[0], info.min), min(span[1], info.max)
    return rng.integers(low, high, count, dtype=dtype, endpoint=True)


@st.composite
def sparse(draw: st.DrawFn) -> Sparse:
    size = draw(sizes)
    indices = draw(index_sets(size))
    return Sparse(size, indices, draw(vectors(len(indices))))


@st.composite
def positions(draw: st.DrawFn) -> Positions:
    size = draw(sizes)
    return Positions(size, draw(index_sets(size)))


@st.composite
def blocks(draw: st.DrawFn) -> Blocks:
    count = draw(sizes)
    return Blocks(count, draw(index_sets(count)), draw(vectors()))


@st.composite
def ternary(draw: st.DrawFn) -> Ternary:
    several = draw(tensor_sizes())
    indices = draw(index_sets(sum(several)))
    negative = np.zeros(len(indices), np.bool_)
    negative[draw(index_sets(len(indices)))] = True
    return Ternary(several, indices, negative, draw(vectors(len(several))))


@st.composite
def levels(draw: st.DrawFn) -> Levels:
    several = draw(tensor_sizes())
    values = draw(vectors(sum(several)))
    times = draw(st.sampled_from([1, 3, 100]))
    return Levels(several, np.repeat(values[::times], times)[: len(values)])


PARTS: dict[object, st.SearchStrategy[Part]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats().filter(lambda number: number_of(number) == number_of(0.1)),
    "single": st.floats(width=32).filter(lambda number: number_of(number) == number_of(0.5)),
    Sparse: sparse(),
    Positions: positions(),
    Blocks: blocks(),
    Ternary: ternary(),
    Levels: levels(),
    **{np.dtype(name): numbers(name) for name in NUMBER_TYPES},
}
"""Parts of every kind, by what the kind holds."""


def anything() -> st.SearchStrategy[Part]:
    """A part of any kind."""
    return st.one_of(*PARTS.values())
