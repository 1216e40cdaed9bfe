"""How small: the entropy bound is met, and nothing is ever larger than the plain ways."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_cases import update

from sparsona.message import Message, Positions, Sparse, Vector
from sparsona.wire import encode, floats, positions

FLOATS = 1
"""A raw vector takes one byte more than its numbers."""


def entropy(size: int, count: int) -> float:
    """n H(k/n) in bits."""
    p = count / size
    return -size * (p * math.log2(p) + (1 - p) * math.log2(1 - p)) if 0 < p < 1 else 0.0


@pytest.mark.parametrize("size", [300_000, 1_663_370])
@pytest.mark.parametrize("density", [0.9, 0.5, 0.3, 0.1, 0.04])
def test_within_a_hundredth_of_the_entropy(size: int, density: float) -> None:
    indices = np.flatnonzero(np.random.default_rng(1).random(size) < density)
    assert len(indices) > 10_000
    piece = positions.encode(size, indices, None)
    assert 8 * len(piece.data) <= 1.01 * entropy(size, len(indices))
    assert piece.ledger.bound == pytest.approx(entropy(size, len(indices)) / 8, rel=0.001)


def test_each_tensor_has_its_density() -> None:
    rng, layout = np.random.default_rng(2), (200_000, 300_000, 500_000)
    indices = np.flatnonzero(rng.random(10**6) < np.repeat([0.3, 0.001, 0.05], layout))
    counts = np.diff(np.searchsorted(indices, [0, 200_000, 500_000, 10**6]))
    own = sum(map(entropy, layout, counts.tolist()))
    piece = positions.encode(10**6, indices, layout)
    assert piece.data[0] == positions.TENSOR_GAPS
    assert 8 * len(piece.data) <= 1.01 * own < 0.8 * entropy(10**6, len(indices))
    assert piece.ledger.bound == pytest.approx(own / 8, rel=0.001)


def test_structure_goes_below_what_densities_allow() -> None:
    rng = np.random.default_rng(3)
    mask = (rng.random(500) < 0.3)[:, None] & (rng.random(800) < 0.3)[None, :] & (rng.random((500, 800)) < 0.9)
    piece = positions.encode(mask.size, np.flatnonzero(mask), (mask.size,))
    assert len(piece.data) < 0.6 * piece.ledger.bound


@settings(max_examples=300, deadline=None)
@given(
    size=st.integers(1, 5000),
    density=st.sampled_from([0.0, 0.0005, 0.01, 0.1, 0.45, 0.5, 0.8, 0.995, 1.0]),
    seed=st.integers(0, 2**32),
    layout=st.booleans(),
)
def test_never_larger_than_the_plain_ways(size: int, density: float, seed: int, layout: bool) -> None:
    """Than a bitmap, a list of 32-bit numbers, and gaps under one density: plus a few bytes."""
    indices = np.flatnonzero(np.random.default_rng(seed).random(size) < density)
    tensors = (size // 3, size - size // 3) if layout else None
    bound = entropy(size, len(indices)) / 8
    best = min((size + 7) // 8, 4 * len(indices), math.ceil(bound))
    assert len(positions.encode(size, indices, tensors).data) <= best + 12


@settings(max_examples=150, deadline=None)
@given(count=st.integers(0, 2000), seed=st.integers(0, 2**32), noise=st.booleans())
def test_floats_are_never_larger_than_raw(count: int, seed: int, noise: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32) if noise else rng.random(count, np.float32)
    assert len(floats.encode(values)) <= 4 * count + FLOATS


def zstd(data: bytes) -> int:
    return len(zstandard.ZstdCompressor(level=19).compress(data))


@pytest.mark.parametrize("count", [500, 20_000])
@pytest.mark.parametrize(
    "kind", ["normal", "uniform", "update", "half", "integers", "constant", "mostly zero", "noise"]
)
def test_dense_vectors_are_below_zstd(kind: str, count: int) -> None:
    rng = np.random.default_rng(4)
    normal = rng.normal(0, 0.05, count).astype(np.float32)
    vectors: dict[str, Vector] = {
        "normal": normal,
        "uniform": rng.random(count, np.float32),
        "update": update(count, 5),
        "half": normal.astype(np.float16).astype(np.float32),
        "integers": rng.integers(-3, 4, count).astype(np.float32),
        "constant": np.full(count, 0.1, np.float32),
        "mostly zero": np.where(rng.random(count) < 0.05, normal, 0).astype(np.float32),
        "noise": rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32),
    }
    assert len(encode(Message(v=vectors[kind])).data) <= zstd(vectors[kind].tobytes()) + 12


@pytest.mark.parametrize("density", [0.5, 0.1, 0.01])
def test_sparse_vectors_are_below_zstd(density: float) -> None:
    rng = np.random.default_rng(6)
    indices = np.flatnonzero(rng.random(100_000) < density)
    values = rng.normal(0, 0.01, len(indices)).astype(np.float32)
    part = Sparse(100_000, indices, values)
    size = len(encode(Message(u=part)).data)
    coo = indices.astype(np.int32).tobytes() + values.tobytes()
    mask = np.packbits(Positions(100_000, indices).mask()).tobytes()
    assert size < min(zstd(coo), zstd(part.dense().tobytes()), zstd(mask + values.tobytes()))


def test_exponents_are_paid_at_their_entropy() -> None:
    values: npt.NDArray[np.float32] = np.random.default_rng(7).normal(0, 1, 200_000).astype(np.float32)
    counts = np.bincount(values.view(np.uint32) >> 23 & 255).astype(float)
    shares = counts[counts > 0] / len(values)
    bits = 24 - float((shares * np.log2(shares)).sum())
    assert 8 * len(floats.encode(values)) / len(values) <= bits


def test_trailing_zeros_of_differences_are_not_paid() -> None:
    """A difference of weights has fewer digits than a weight: here 9 bits of each mantissa are zero."""
    assert 8 * len(floats.encode(update(20_000, 8))) / 20_000 < 18
