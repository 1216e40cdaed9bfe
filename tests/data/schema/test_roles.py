"""Numbers of rows and of patients are found; no measurement is taken for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sparsona import data
from sparsona.data.dataset import Array, Dataset
from sparsona.data.schema.columns import Columns, Format
from sparsona.data.schema.roles import counts_rows, identifies, infer
from sparsona.data.schema.rows import understand
from sparsona.data.schema.table import Table
from sparsona.errors import DataError

RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("nummer", RNG.integers(0, 10**7, 123)),
        ("nummer", RNG.integers(10**9, 10**10, 2000)),
        ("patient_id", RNG.permutation(4000)[:30]),
        ("CaseNr", RNG.permutation(400)[:30].astype(float)),
        ("patientID", 3 * np.arange(30)),
    ],
)
def test_numbers_of_patients_are_found(name: str, values: Array) -> None:
    assert len(np.unique(values)) == len(values)
    assert identifies(name, values)


@pytest.mark.parametrize("values", [np.arange(1000, 1020), np.arange(7, 57)[::-1], RNG.permutation(60) + 200000])
def test_numbers_of_rows_are_found_from_any_start(values: Array) -> None:
    assert counts_rows(values)


def unlike(values: Array) -> Array:
    """Whole numbers, each once."""
    return np.unique(values.round())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("income", unlike(np.exp(RNG.normal(10.5, 0.7, 200)))),
        ("population", unlike(np.exp(RNG.normal(9, 2, 300)))),
        ("platelets", unlike(RNG.normal(250_000, 60_000, 90))),
        ("weight in grams", unlike(RNG.normal(3300, 500, 60))),
        ("steps", unlike(RNG.exponential(6000, 60))),
        ("age", np.arange(31, 45)),
        ("width", unlike(RNG.normal(500, 80, 60))),
        ("idle", RNG.permutation(400)[:30]),
        ("dose", RNG.normal(size=200) * 1e7),
        ("id", np.repeat(np.arange(30), 2)),
        ("id", np.array(["a", "b"] * 30)),
        ("id", np.full(60, np.nan)),
        ("id", np.full(60, np.inf)),
        ("id", np.append(np.arange(59.0), np.nan)),
    ],
)
def test_measurements_are_none(name: str, values: Array) -> None:
    assert not identifies(name, values)
    assert not counts_rows(values)


def subsets(values: Array) -> Iterator[Array]:
    """All of it, its beginning, and some rows by chance."""
    yield values
    for size in (20, 50, 100, 300):
        if len(values) > size:
            yield values[:size]
            yield values[np.random.default_rng(size).choice(len(values), size, replace=False)]


@pytest.mark.parametrize("name", ["heart-disease", "covtype", "digits"])
def test_no_column_of_the_tables_here_is_one(real: Callable[[str], Dataset], name: str) -> None:
    loaded = real(name)
    columns = loaded.inputs.reshape(len(loaded), -1)
    called = loaded.rows.order if loaded.rows is not None else [f"x{k}" for k in range(columns.shape[1])]
    groups = np.zeros(len(loaded)) if loaded.groups is None else loaded.groups
    for group in np.unique(groups):
        for column, values in zip(called, columns[groups == group].T, strict=True):
            for some in subsets(values[~np.isnan(values.astype(np.float32))]):
                assert not identifies(column, some), column
                assert not counts_rows(some), column


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes", "linnerud"])
def test_no_column_of_other_tables_is_one(name: str) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    made = getattr(datasets, f"load_{name}")()
    for column, values in zip(made.feature_names, made.data.T, strict=True):
        for some in subsets(values):
            assert not identifies(column, some), column
            assert not counts_rows(some), column


def test_they_are_refused_unless_they_are_named(tmp_path: Path) -> None:
    ids = np.random.default_rng(1).choice(10**7, 80, replace=False)
    lines = [f"{k},{20 + n * n % 50},{n % 2}" for n, k in enumerate(ids)]
    (tmp_path / "a.csv").write_text("\n".join(["nummer,age,label", *lines]) + "\n")
    with pytest.raises(DataError) as caught:
        data.load(f"folder:{tmp_path}")
    assert str(caught.value) == (
        f"{tmp_path}/a.csv, column 'nummer' has another number in every row, as an identifier has; "
        "pass --drop nummer, or name the --features to learn from"
    )
    assert data.load(f"folder:{tmp_path}", columns=Columns(features=("nummer", "age"))).inputs.shape == (80, 2)
    assert data.load(f"folder:{tmp_path}", columns=Columns(drop=("nummer",))).inputs.shape == (80, 1)
    with pytest.raises(DataError) as caught:
        data.load(f"folder:{tmp_path}", columns=Columns(categorical=("nummer",)))
    assert str(caught.value) == (
        f"{tmp_path}/a.csv, column 'nummer' has 80 values in 80 rows, about one a row; "
        "they would be sent to the server: pass --drop nummer"
    )
    (tmp_path / "a.csv").write_text("\n".join(["nummer,age,label", *(f"P{line}" for line in lines)]) + "\n")
    with pytest.raises(
        DataError, match="is text, as all of the column, and another in about every row; pass --drop num"
    ):
        data.load(f"folder:{tmp_path}")


def test_a_count_in_some_order_needs_many_rows() -> None:
    assert counts_rows(np.array([0.0, 1.0, 2.0, 3.0]))
    assert not counts_rows(np.array([0.0, 2.0, 4.0, 6.0]))
    assert counts_rows(np.arange(1000, 1030)[::-1])
    assert not counts_rows(np.arange(31, 36))


def test_measurements_gather_and_identifiers_do_not() -> None:
    rng = np.random.default_rng(0)
    assert identifies("x", rng.integers(0, 10**7, 200))
    assert not identifies("x", np.exp(rng.normal(10, 1, 200)).round())


@pytest.mark.parametrize("rows", [25, 250, 10**6])
def test_more_than_twenty_whole_numbers_of_a_table_are_asked_about(rows: int) -> None:
    with pytest.raises(
        DataError, match=f"holds 25 different whole numbers in {rows} training rows; pass --task classif"
    ):
        infer("auto", "whole", "days", 25, rows)
    assert infer("classification", "whole", "days", 25, rows) == "classification"
    assert infer("regression", "whole", "days", 25, rows) == "regression"


def test_twenty_are_classes_and_so_are_labels_of_images() -> None:
    assert infer("auto", "whole", "days", 20, 25) == "classification"
    assert infer("auto", "whole", "y", 100, 1000, table=False) == "classification"
    with pytest.raises(DataError, match="holds 100 different whole numbers"):
        infer("auto", "whole", "y", 100, 999, table=False)


def test_texts_are_classes_unless_they_are_names() -> None:
    assert infer("auto", "text", "town", 100, 200) == "classification"
    with pytest.raises(
        DataError, match="holds 100 different texts in 199 training rows; pass --task classification, or"
    ):
        infer("auto", "text", "town", 100, 199)


@pytest.mark.parametrize("kind", ["int64", "csv"])
def test_classes_with_more_digits_than_a_number_holds_are_asked_about(kind: str) -> None:
    ids = [str(2**60 + 1), str(2**60 + 2)] * 5
    y = np.array(ids) if kind == "csv" else np.array(ids).astype(np.int64)
    raw = frozenset({"y"}) if kind == "csv" else frozenset[str]()
    table = Table("a", "a.csv", {"x": np.arange(10.0) % 4, "y": y}, raw=raw).read(Format())
    line = "a.csv, row 0, column 'y': 1152921504606846977 has more digits than a number holds; pass --categorical y"
    with pytest.raises(DataError, match=line):
        understand(table, Columns(target=("y",)))
    named = understand(table, Columns(target=("y",), categorical=("y",)))
    assert np.unique(named.target).tolist() == sorted(set(ids))


def test_the_kind_of_a_target_tells_the_task() -> None:
    assert infer("auto", "whole", "label", classes=2, rows=100) == "classification"
    assert infer("auto", "decimal", "y", classes=0, rows=100) == "regression"
