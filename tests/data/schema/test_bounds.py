from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsona.data.schema.bounds import Bounds, check_declared, within
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.rows import Rows, understand
from sparsona.data.schema.table import Table
from sparsona.errors import DataError, InputError
from sparsona.prepare import prepare
from sparsona.testing.privacy import arrays

DECLARED: dict[str, Any] = {
    "target": ("ill",),
    "task": "classification",
    "classes": ("no", "yes"),
    "categorical": ("sex",),
    "bounds": ("age=0:120", "sex=f/m"),
}


def rows_of(age: list[float], sex: list[str], ill: list[str], **changes: Any) -> Rows:
    table = Table("a", "a.csv", {"age": np.array(age), "sex": np.array(sex), "ill": np.array(ill)})
    return within(understand(table, Columns(**{**DECLARED, **changes})))


ONE = rows_of([30.0, 50.0, 400.0], ["f", "m", "x"], ["no", "yes", "no"])


def test_rows_are_made_to_fit_one_by_one() -> None:
    assert ONE.numbers[:, 0].tolist() == [30.0, 50.0, 120.0]
    assert ONE.categories["sex"].tolist() == ["f", "m", ""]


def test_the_description_of_declared_columns_is_the_same_for_all_rows() -> None:
    other = rows_of([np.nan, 1.0, -9.0], ["m", "", "q"], ["yes", "yes", "yes"])
    told = [[part.tobytes() for part in arrays(describe_rows(rows, np.arange(3)))] for rows in (ONE, other)]
    assert told[0] == told[1]
    assert len(told[0]) > 4
    undeclared = rows_of([30.0, 50.0, 70.0], ["f", "m", "f"], ["no", "yes", "no"], bounds=())
    assert [part.tobytes() for part in arrays(describe_rows(undeclared, np.arange(3)))] != told[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bounds": ("age=0:120",)}, "bounds of sex"),
        ({"bounds": ()}, "bounds of age,sex"),
        ({"task": "auto"}, "task"),
        ({"classes": ()}, "classes"),
        ({"scaling": "own"}, "own depends"),
    ],
)
def test_what_would_be_read_off_the_rows_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check_declared(rows_of([30.0, 50.0], ["f", "m"], ["no", "yes"], **changes))


def test_a_class_that_is_not_declared_is_refused() -> None:
    with pytest.raises(DataError, match="does not name"):
        describe_rows(rows_of([30.0, 50.0], ["f", "m"], ["no", "perhaps"]), np.arange(2))


@pytest.mark.parametrize("text", ["age", "age=9:1", "=0:1", "age=a:b", "age=0:inf"])
def test_other_texts_are_no_bounds(text: str) -> None:
    with pytest.raises(InputError, match="is none"):
        Bounds.of([text])


def test_a_table_trains_with_a_budget_once_its_columns_are_declared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for ward in ("east", "west"):
        lines = [f"{rng.integers(20, 90)},{'fm'[i % 2]},{rng.choice(['no', 'yes'])}" for i in range(40)]
        (tmp_path / f"{ward}.csv").write_text("\n".join(["age,sex,ill", *lines]) + "\n")
    settings = {"method": "fedavg", "data": f"folder:{tmp_path}", "rounds": 2, "privacy": {"noise": 1.0}}
    columns = {**DECLARED, "bounds": ["age=0:120", "sex=f/m"]}
    found = prepare({**settings, "columns": columns})
    (schema,) = {repr(schema.features) for schema in found.agreement.schemas.values()}
    assert "60.0" in schema
    with pytest.raises(InputError, match="declare columns"):
        prepare({**settings, "columns": {**columns, "bounds": []}})
