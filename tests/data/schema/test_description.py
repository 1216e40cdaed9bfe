"""What an owner may say of its rows: anything else is one line that names the owner."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.data.schema.columns import Columns
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.exchange import agree
from sparsona.data.schema.limits import MOST_CATEGORIES, MOST_CHARACTERS, pack_doubles, pack_text, text_in
from sparsona.data.schema.rows import understand
from sparsona.data.schema.table import Table
from sparsona.errors import DataError, SparsonaError, WireError
from sparsona.message import Message, Part

COLUMNS = Columns(categorical=("sex", "code"))


def owner(seed: int, **changes: np.ndarray) -> Message:
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.normal(50, 10, 40),
        "sex": rng.choice(["f", "m"], 40),
        "code": rng.integers(0, 3, 40).astype(float),
        "label": rng.choice(["ill", "well"], 40),
    }
    return describe_rows(understand(Table("a", "a.csv", columns | changes), COLUMNS), np.arange(40))


HONEST = {"a": owner(1), "b": owner(2), "c": owner(3)}
TEXTS = ("head", "categories", "classes")
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def said_with(part: str, value: Part) -> dict[str, Message]:
    return {**HONEST, "evil": Message(**{**HONEST["c"].parts, part: value})}


def answer(said: dict[str, Message]) -> tuple[Message | None, str]:
    """What is agreed on, or the line by which it is refused."""
    try:
        return agree(said), ""
    except SparsonaError as error:
        return None, str(error)


def mutated(tree: Any, data: st.DataObject) -> Any:
    """The tree with one of its values, at any depth, replaced, removed or put within lists."""
    if isinstance(tree, dict | list) and tree and data.draw(st.integers(0, 3)):
        key = data.draw(st.sampled_from(list(tree) if isinstance(tree, dict) else range(len(tree))))
        changed = dict(tree) if isinstance(tree, dict) else list(tree)
        if data.draw(st.booleans()):
            changed[key] = mutated(tree[key], data)
        else:
            del changed[key]
        return changed
    return data.draw(anything | st.just([[[tree]]]))


@settings(max_examples=200, deadline=None)
@given(data=st.data(), part=st.sampled_from(TEXTS))
def test_any_other_text_is_refused_by_name_or_harmless(data: st.DataObject, part: str) -> None:
    tree = mutated(json.loads(text_in(HONEST["c"], part)), data)
    said = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    agreed, line = answer(said_with(part, said))
    assert (agreed is None) == bool(line)
    assert line == "" or "client 'evil'" in line
    assert "\n" not in line


@settings(max_examples=200, deadline=None)
@given(
    part=st.sampled_from(("rows", "missing", "inputs.known", "inputs.mean", "inputs.squares")),
    value=st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(lambda n: np.array(n, np.int64))
    | st.lists(st.floats(), min_size=1, max_size=1).map(pack_doubles),
)
def test_any_other_number_is_refused_by_name_or_harmless(part: str, value: Part) -> None:
    agreed, line = answer(said_with(part, value))
    if agreed is None:
        assert "client 'evil'" in line
    else:
        mean, std = (agreed.numbers(name).view(np.float64)[0] for name in ("mean", "std"))
        assert 0 < mean < 500
        assert 1 < std < 500, "the inputs of the others keep their scale"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("rows", 2**62),
        ("inputs.known", np.array([41])),
        ("inputs.mean", pack_doubles([1e39])),
        ("inputs.squares", pack_doubles([1e308])),
        ("classes", pack_text(["x" * (MOST_CHARACTERS + 1)])),
        ("classes", pack_text([f"class {k}" for k in range(2000)])),
        ("categories", pack_text({"sex": [f"sex {k}" for k in range(200_000)], "code": []})),
        ("categories", pack_text({"sex": ["f"], "code": ["nan"]})),
        ("categories", pack_text({"sex": ["f"]})),
        ("head", np.frombuffer(b"[" * 100_000, np.uint8)),
        ("head", np.frombuffer(b'{"columns": ' + b"9" * 5000 + b"}", np.uint8)),
    ],
)
def test_what_costs_the_others_is_refused(part: str, value: Part) -> None:
    with pytest.raises((WireError, DataError), match="client 'evil'"):
        agree(said_with(part, value))


def test_an_owner_with_too_many_categories_learns_it_at_home() -> None:
    many = MOST_CATEGORIES + 1
    table = {
        "sex": np.array([f"s{k % many}" for k in range(3 * many)]),
        "age": np.arange(3.0 * many) % 7,
        "label": np.arange(3 * many) % 2,
    }
    rows = understand(Table("a", "a.csv", table), Columns(categorical=("sex",)))
    with pytest.raises(DataError, match=r"column 'sex' has 1001 categories .* pass --drop sex"):
        describe_rows(rows, np.arange(len(rows)))
