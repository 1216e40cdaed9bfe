"""The papers' coders: the reference values of the specification, and round trips."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.errors import WireError
from sparsona.wire import floats, levels
from sparsona.wire.papers import (
    gamma_bits,
    gamma_decode,
    gamma_encode,
    rice_bits,
    rice_decode,
    rice_encode,
    rice_expected_bits,
    rice_parameter,
)


@pytest.mark.parametrize(("size", "count", "low", "bits"), [(10, 1, 3, 4.756), (100, 1, 6, 8.108), (400, 1, 8, 10.114)])
def test_rice_reference_values(size: int, count: int, low: int, bits: float) -> None:
    assert rice_parameter(size, count) == low
    assert rice_expected_bits(count / size, low) == pytest.approx(bits, abs=5e-4)


@pytest.mark.parametrize("density", [0.1, 0.01, 1 / 400])
def test_rice_meets_its_expectation(density: float) -> None:
    size = 2_000_000
    indices = np.flatnonzero(np.random.default_rng(0).random(size) < density)
    expected = rice_expected_bits(density, rice_parameter(size, len(indices)))
    assert rice_bits(indices, size) / len(indices) == pytest.approx(expected, rel=0.01)
    assert len(rice_encode(indices, size)) == (rice_bits(indices, size) + 7) // 8


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32), st.sampled_from([0.01, 0.2, 0.5, 0.95, 1.0]))
def test_rice_round_trip(size: int, seed: int, density: float) -> None:
    indices = np.flatnonzero(np.random.default_rng(seed).random(size) < density)
    np.testing.assert_array_equal(rice_decode(rice_encode(indices, size), size, len(indices)), indices)


def test_rice_refuses_what_does_not_fit() -> None:
    with pytest.raises(WireError):
        rice_decode(b"\xff\xff", 100, 10)
    with pytest.raises(WireError):
        rice_decode(b"", 100, 1)


@pytest.mark.parametrize(
    ("number", "bits"), [(1, 1), (2, 3), (3, 3), (4, 5), (5, 5), (6, 5), (7, 5), (8, 7), (100, 13)]
)
def test_gamma_reference_values(number: int, bits: int) -> None:
    assert gamma_bits([number]) == bits
    written = "".join(f"{byte:08b}" for byte in gamma_encode([number]))[:bits]
    assert written == "0" * (number.bit_length() - 1) + f"{number:b}"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 2**61) | st.integers(1, 20)))
def test_gamma_round_trip(numbers: list[int]) -> None:
    data = gamma_encode(numbers)
    assert len(data) == (gamma_bits(numbers) + 7) // 8
    assert gamma_decode(data, len(numbers)).tolist() == numbers


def test_gamma_refuses_zero_and_truncation() -> None:
    with pytest.raises(WireError):
        gamma_bits([0])
    with pytest.raises(WireError):
        gamma_decode(b"\x00", 1)


def test_levels_cost_what_the_formula_says() -> None:
    """Counts in gamma, 32 bits a level, the level of each run, and the lengths of all runs but the last in gamma."""
    values = np.repeat(np.array([1, 2, 1, 3, 4], np.float32), [4, 100, 7, 8, 1000])
    formula = gamma_bits([5]) + gamma_bits([4]) + 4 * 32 + 2 + 4 * 2 + gamma_bits([4, 100, 7, 8])
    assert levels.bits(values) == formula
    assert len(levels.encode((len(values),), values, floats.encode)) <= 2 + (formula + 1 + 7) // 8


def test_a_constant_costs_its_header_and_one_level() -> None:
    assert levels.bits(np.full(10**6, 0.3, np.float32)) == 1 + 1 + 32


def test_more_runs_never_cost_less() -> None:
    two = [levels.bits(np.resize(np.repeat(np.float32([0, 1]), n), 512)) for n in (256, 128, 64, 32, 16, 8, 4)]
    assert two == sorted(two)
