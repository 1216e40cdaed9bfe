"""Vectors of few levels: what they cost, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona.wire import floats, levels
from sparsona.wire.levels import gamma_bits


@pytest.mark.parametrize(
    ("number", "bits"), [(1, 1), (2, 3), (3, 3), (4, 5), (5, 5), (6, 5), (7, 5), (8, 7), (100, 13), (2**61, 123)]
)
def test_gamma_reference_values(number: int, bits: int) -> None:
    assert gamma_bits(np.array([number])) == bits


def test_levels_cost_what_the_formula_says() -> None:
    """Counts in gamma, 32 bits a level, the level of each run, and the lengths of all runs but the last in gamma."""
    values = np.repeat(np.array([1, 2, 1, 3, 4], np.float32), [4, 100, 7, 8, 1000])
    formula = gamma_bits(np.array([5, 4])) + 4 * 32 + 2 + 4 * 2 + gamma_bits(np.array([4, 100, 7, 8]))
    assert levels.bits(values) == formula
    assert len(levels.encode((len(values),), values, floats.encode)) <= 2 + (formula + 1 + 7) // 8


def test_a_constant_costs_its_header_and_one_level() -> None:
    assert levels.bits(np.full(10**6, 0.3, np.float32)) == 1 + 1 + 32


def test_more_runs_never_cost_less() -> None:
    two = [
        levels.bits(np.resize(np.repeat(np.array([0, 1], np.float32), n), 512)) for n in (256, 128, 64, 32, 16, 8, 4)
    ]
    assert two == sorted(two)
