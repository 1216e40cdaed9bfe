"""A schema from outside is checked as a whole, or refused by an error of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import mutated

from sparsona.data.schema.columns import Format
from sparsona.data.schema.schema import Category, Number, Schema, told_schema
from sparsona.errors import WireError

TABLE = Schema(
    "classification",
    ("ill",),
    ("no", "yes"),
    features=(Number("age", 50.0, 9.0, True), Category("sex", ("f", "m")), Category("ward", ("1", "2"), True)),
    format=Format(separator=";", missing=("", "-9")),
)
IMAGES = Schema("classification", ("y",), ("0", "1"), True, inputs="images", shape=(1, 4, 4), mean=(0.5,), std=(0.2,))


def tree(schema: Schema) -> Any:
    return json.loads(json.dumps(schema.to_json()))


@pytest.mark.parametrize("schema", [TABLE, IMAGES], ids=["table", "images"])
def test_what_was_written_is_read(schema: Schema) -> None:
    assert told_schema(tree(schema)) == schema


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([tree(TABLE), tree(IMAGES)]).flatmap(mutated))
def test_a_mutated_schema_is_refused_or_can_be_used(found: Any) -> None:
    try:
        schema = told_schema(found)
    except WireError as error:
        why = str(error)
        assert why.isprintable()
        return
    again = told_schema(tree(schema))
    assert again.input_shape == schema.input_shape
    assert again.to_json() == told_schema(tree(again)).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"features": [{"kind": "number", "column": "a", "mean": 10**400}]},
        {"features": [{"kind": "number", "column": 7}]},
        {"features": [{"kind": "number", "column": "a", "std": 0.0}]},
        {"features": [{"kind": "category", "column": "a", "values": ["x"], "numeric": True}]},
        {"format": {"separator": ";;"}},
        {"format": {"encoding": "no such one"}},
        {"classes": []},
        {"task": "clustering"},
    ],
)
def test_what_a_model_could_not_use_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="the schema is not valid"):
        told_schema({**tree(TABLE), **change})


def test_a_schema_of_wrong_types_is_named_in_one_line() -> None:
    with pytest.raises(WireError, match=r"^the schema is not valid: targets\.0: Input should be a valid string$"):
        told_schema({"task": "regression", "targets": [["y"]], "features": []})
