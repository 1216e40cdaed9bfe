"""Owners that are merely different stay; one whose statistics would flatten everyone's inputs is refused by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from sparsona.data.dataset import Array
from sparsona.data.schema.moments import ColumnMoments, moments, pooled, refuse_implausible
from sparsona.errors import DataError


def check(owners: Mapping[str, Array]) -> None:
    told = {name: moments(values) for name, values in owners.items()}
    width = len(next(iter(told.values())).mean)
    refuse_implausible(told, [f"x{k}" for k in range(width)])


def ward(rng: np.random.Generator) -> Array:
    """Lab values of skewed distributions, counts that are rare elsewhere, shifted measurements, yes and no."""
    rows = int(rng.integers(20, 500))
    return np.hstack(
        [
            rng.lognormal(rng.normal(0, 1), 1.0, (rows, 4)),
            rng.poisson(rng.choice([0.01, 0.1, 1, 5], 3), (rows, 3)),
            rng.normal(rng.normal(0, 3), np.exp(rng.normal(0, 1)), (rows, 3)),
            rng.random((rows, 4)) < rng.choice([0, 0.001, 0.1, 0.6, 1], 4),
        ]
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 8))
def test_owners_that_are_merely_different_stay(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    check({f"w{k}": ward(rng) for k in range(count)})


def test_owners_of_one_class_each_stay() -> None:
    """Pixels at the rim are white for nearly all of the others."""
    pixels, digits = load_digits(return_X_y=True)
    check({str(digit): pixels[digits == digit] for digit in range(10)})


@pytest.mark.parametrize("rows", [1, 50, 10_000])
@pytest.mark.parametrize("value", [1e9, -1e30])
def test_one_owner_cannot_flatten_the_others(rows: int, value: float) -> None:
    rng = np.random.default_rng(0)
    owners = {name: rng.normal(50, 10, (100, 3)) for name in ("a", "b", "c")}
    owners["evil"] = rng.normal(50, 10, (rows, 3))
    owners["evil"][:, 1] = value
    with pytest.raises(DataError, match="evil disagrees grossly with the others, as in 'x1'"):
        check(owners)


@pytest.mark.parametrize("factor", [30.0, 1 / 30])
def test_one_owner_cannot_rescale_most_columns(factor: float) -> None:
    """A factor that one column may have makes the inputs of all useless if most columns have it."""
    rng = np.random.default_rng(0)
    told = {name: moments(rng.normal(0, 10, (100, 4))) for name in ("a", "b", "c")}
    evil = told["a"]
    lying = ColumnMoments(evil.count * 10_000, evil.mean, evil.squares * 10_000 * factor**2)
    with pytest.raises(DataError, match="evil"):
        refuse_implausible({**told, "evil": lying}, list("uvwx"))
    one = ColumnMoments(evil.count, evil.mean, evil.squares * np.array([30.0**2, 1, 1, 1]))
    refuse_implausible({**told, "odd": one}, list("uvwx"))


def test_what_few_rows_say_is_chance() -> None:
    check({"a": np.array([[1.0], [1.001]]), "b": np.array([[900.0], [-3.0]])})


def test_a_column_that_is_constant_elsewhere_is_not_judged() -> None:
    check({"a": np.zeros((30, 1)), "b": np.zeros((30, 1)), "c": np.arange(30.0)[:, None]})


HOSPITALS = {
    "cleveland": [(303, 54.4, 9.0), (303, 131.7, 17.6), (303, 246.7, 51.7), (303, 1.04, 1.16), (299, 0.67, 0.94)],
    "hungarian": [(294, 47.8, 7.8), (293, 132.6, 17.6), (271, 250.9, 67.5), (294, 0.59, 0.91), (3, 0.0, 0.0)],
    "switzerland": [(123, 55.3, 9.0), (121, 130.2, 22.5), (123, 0.0, 0.0), (117, 0.65, 1.05), (5, 1.6, 0.49)],
    "va": [(200, 59.4, 7.8), (144, 133.8, 21.5), (193, 178.8, 113.7), (144, 1.32, 1.1), (2, 0.0, 0.0)],
}
"""Count, mean and deviation of age, pressure, cholesterol (0 in Switzerland), ST depression and vessels (UCI heart
disease)."""


def test_the_hospitals_of_heart_disease_stay() -> None:
    told = {}
    for hospital, columns in HOSPITALS.items():
        known, mean, std = np.array(columns).T
        told[hospital] = ColumnMoments(known.astype(np.int64), mean, known * std**2)
    refuse_implausible(told, ["age", "pressure", "cholesterol", "depression", "vessels"])


def test_pooled_moments_are_those_of_all_rows() -> None:
    whole = pooled([moments(np.array([[1.0], [2.0]])), moments(np.array([[6.0]]))])
    assert (whole.mean.tolist(), whole.squares.tolist()) == ([3.0], [14.0])
