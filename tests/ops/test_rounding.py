"""Few values for a sparse update: powers of two, levels, ternary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.message import Sparse
from sparsona.ops.rounding import levels, powers_of_two, rounded

sizes = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda x: x == 0 or abs(x) > 1e-30)
numbers = st.lists(sizes, min_size=1, max_size=50)


@given(numbers)
def test_powers_of_two_are_the_nearest_ones(given: list[float]) -> None:
    values = np.array(given, np.float32)
    found = powers_of_two(values)
    mantissas, _ = np.frexp(found)
    assert np.isin(np.abs(mantissas), [0, 0.5]).all()
    assert (np.sign(found) == np.sign(values)).all()
    for factor in (0.5, 2):
        nearer = np.abs(found.astype(float) * factor - values) < np.abs(found.astype(float) - values)
        assert not nearer.any()


def test_powers_of_two_stay_finite_and_zero_stays_zero() -> None:
    extreme = np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max, 0, -0.0, 1e-45], np.float32)
    found = powers_of_two(extreme)
    assert found.tolist() == [2.0**127, -(2.0**127), 0, 0, 0]


@given(numbers, st.integers(1, 60))
def test_levels_keep_signs_and_the_sum_of_magnitudes(given: list[float], count: int) -> None:
    values = np.array(given, np.float32)
    found = levels(values, count)
    assert len(np.unique(np.abs(found))) <= count
    assert np.abs(found).sum(dtype=np.float64) == pytest.approx(np.abs(values).sum(dtype=np.float64), rel=1e-5)
    if count >= len(values):
        assert found == pytest.approx(values)


def test_every_tensor_has_its_own_levels() -> None:
    update = Sparse(8, np.array([0, 1, 4, 5, 6]), np.array([1, -3, 10, 20, 60], np.float32))
    assert rounded(update, (4, 4), "ternary").values.tolist() == [2, -2, 30, 30, 30]
    assert rounded(update, (4, 4), "levels:2").values.tolist() == [1, -3, 15, 15, 60]
    assert rounded(update, (4, 4), "float32") is update
    assert rounded(Sparse(8, np.array([5]), np.array([3], np.float32)), (4, 4), "ternary").values.tolist() == [3]


@pytest.mark.parametrize("method", ["fedpse", "fedscr", "fedthin", "topk", "ef21"])
def test_methods_take_values_by_name(method: str) -> None:
    for values in ("float32", "pow2", "levels:4", "ternary"):
        assert make_method(method, {"values": values}).values == values  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="values"):
        make_method(method, {"values": "levels:0"})
