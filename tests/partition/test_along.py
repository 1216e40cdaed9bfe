"""Splits by time and by group: what is tested, what is left out, and what cannot be split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsona
from sparsona.chance import Chance
from sparsona.data import Columns, from_python
from sparsona.data.dataset import ClientSplit, Dataset
from sparsona.data.schema.roles import along_of
from sparsona.errors import InputError
from sparsona.partition._split import federate

pandas = pytest.importorskip("pandas")


def walks(rows: int = 50, people: int = 2) -> dict[str, Any]:
    """A table a person, in no order: a time, a session of ten rows, a feature, a class."""
    rng = np.random.default_rng(2)
    found = {}
    for person in range(people):
        order = rng.permutation(rows)
        columns = {"t": order * 0.5, "session": order // 10, "x": rng.normal(size=rows), "label": order % 2}
        found[f"p{person}"] = pandas.DataFrame(columns)
    return found


def split(by: str, given: dict[str, Any] | None = None, **options: Any) -> tuple[Dataset, dict[str, ClientSplit]]:
    along = along_of(by)
    data = from_python(given or walks(), columns=Columns(features=("x",)), along=along)
    return data, dict(federate(data, "groups", 0, Chance(0), along=along, **options).splits)


def values(data: Dataset, rows: np.ndarray) -> np.ndarray:
    assert data.rows is not None
    assert data.rows.along is not None
    found: np.ndarray = data.rows.along[rows]
    return found


def test_by_time_the_last_rows_are_tested() -> None:
    data, splits = split("time:t")
    for one in splits.values():
        assert (len(one.train), len(one.validation), len(one.test)) == (36, 4, 10)
        assert values(data, one.train).max() < values(data, one.validation).min()
        assert values(data, one.validation).max() < values(data, one.test).min()


def test_a_gap_keeps_windows_that_overlap_apart() -> None:
    data, splits = split("time:t:2", validation=0.0)
    for one in splits.values():
        assert values(data, one.test).min() - values(data, one.train).max() == 2.0
        assert (len(one.train), len(one.test)) == (37, 10)  # 18.5, 19.0 and 19.5 are in neither


def test_rows_of_one_time_stay_together() -> None:
    table = pandas.DataFrame({"t": np.repeat([1, 2, 3], [4, 3, 3]), "x": np.arange(10.0) ** 2, "label": [0, 1] * 5})
    data, splits = split("time:t", {"a": table}, validation=0.0)
    assert set(values(data, splits["a"].test)) == {3.0}
    assert len(splits["a"].test) == 3


def test_dates_are_times() -> None:
    days = pandas.date_range("2026-01-01", periods=10).astype(str)[::-1]
    table = pandas.DataFrame({"t": days, "x": np.arange(10.0) ** 2, "label": [0, 1] * 5})
    _, splits = split("time:t", {"a": table}, validation=0.0)
    assert splits["a"].test.tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(3))
def test_by_group_whole_groups_are_tested(seed: int) -> None:
    along = along_of("group:session")
    data = from_python(walks(), columns=Columns(features=("x",)), along=along)
    splits = federate(data, "groups", 0, Chance(seed), along=along).splits
    for one in splits.values():
        parts = [set(values(data, rows)) for rows in (one.train, one.validation, one.test)]
        assert [len(part) for part in parts] == [3, 1, 1]
        assert len(set.union(*parts)) == 5
    drawn = [federate(data, "groups", 0, Chance(0), along=along, repeat=k).splits["p0"].test for k in range(6)]
    assert len({tuple(rows) for rows in drawn}) > 1


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30), st.integers(0, 2**31))
def test_no_group_is_in_two_parts(groups: list[int], seed: int) -> None:
    table = pandas.DataFrame(
        {
            "g": groups,
            "x": np.arange(len(groups)) ** 2.0,
            "label": [0, 1] * (len(groups) // 2) + [0] * (len(groups) % 2),
        }
    )
    along = along_of("group:g")
    data = from_python({"a": table}, columns=Columns(features=("x",)), along=along)
    if len(set(groups)) < 2:
        with pytest.raises(InputError, match="cannot be split by group"):
            federate(data, "groups", 0, Chance(seed), along=along)
        return
    one = federate(data, "groups", 0, Chance(seed), along=along).splits["a"]
    parts = [set(values(data, rows)) for rows in (one.train, one.validation, one.test)]
    assert sum(len(part) for part in parts) == len(set(groups))
    assert len(one.train)
    assert len(one.test)


def test_repeats_divide_the_same_clients_otherwise() -> None:
    data = from_python(walks(), columns=Columns(features=("x",)))
    first, again, other = (federate(data, "groups", 0, Chance(0), repeat=k).splits["p0"] for k in (0, 0, 1))
    assert first.test.tolist() == again.test.tolist() != other.test.tolist()
    one, two = (np.sort(np.concatenate([part.train, part.validation, part.test])) for part in (first, other))
    assert np.array_equal(one, two)


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        ("tiem:t", "split 'tiem:t' is not known; choose random, time:COLUMN, time:COLUMN:GAP or group:COLUMN"),
        ("time", "split 'time' is not known"),
        ("time:t:-1", "the gap must be a number from 0 on"),
        ("time:t:100", "client 'p0' cannot be split by time: its 50 rows leave 0 to train on and 10 to test"),
    ],
)
def test_a_split_that_cannot_be_is_told(by: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        split(by)


def test_the_column_of_the_split_is_no_feature() -> None:
    result = sparsona.run("local", data=walks(), rounds=1, drop="session", split={"by": "time:t"})
    assert [feature.column for feature in result.models["p0"].card.schema.features] == ["x"]
    kept = sparsona.run("local", data=walks(), rounds=1, features="x,t", split={"by": "time:t"})
    assert [feature.column for feature in kept.models["p0"].card.schema.features] == ["x", "t"]
