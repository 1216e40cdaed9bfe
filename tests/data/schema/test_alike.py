"""Names that differ only in how they are written are asked about, not taken for two."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.errors import DataError

pandas = pytest.importorskip("pandas")


def frames(**labels: tuple[str, str]) -> dict[str, Any]:
    """An owner each, whose two classes are called so."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    return {owner: pandas.DataFrame({"x": x, "y": np.where(x > 0, yes, no)}) for owner, (yes, no) in labels.items()}


def test_classes_that_differ_in_spelling_are_asked_about() -> None:
    given = frames(a=("ill", "well"), b=("Ill", "well"))
    line = "column 'y': 'Ill' of client 'b' and 'ill' of client 'a' differ only in capitals, .* pass --spelling exact"
    with pytest.raises(DataError, match=line):
        sparsona.run("fedavg", data=given, rounds=1)
    exact = sparsona.run("fedavg", data=given, rounds=1, spelling="exact")
    assert exact.models["a"].card.schema.classes == ("Ill", "ill", "well")


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("gr\u00f6\u00dfer", "gro\u0308\u00dfer", r"'gro\u0308\xdfer' of client 'b' and 'gr\xf6\xdfer' of client 'a'"),
        ("very ill", "very  ill", r"'very \x20ill' of client 'b' and 'very ill' of client 'a'"),
    ],
)
def test_what_looks_the_same_is_told_by_its_characters(one: str, other: str, told: str) -> None:
    with pytest.raises(DataError, match=re.escape(told)):
        sparsona.run("fedavg", data=frames(a=(one, "-"), b=(other, "-")), rounds=1)


def test_categories_are_asked_about_too() -> None:
    given = frames(a=("ill", "well"))
    given["a"]["sex"] = ["male", "Male"] * 20
    with pytest.raises(DataError, match="column 'sex': 'Male' of client 'a' and 'male' of client 'a' differ only"):
        sparsona.run("fedavg", data=given, rounds=1, categorical="sex")


def test_a_column_that_is_named_twice_is_told() -> None:
    with pytest.raises(DataError, match="--features names 'x' twice: name it once"):
        sparsona.run("fedavg", data=frames(a=("ill", "well")), rounds=1, features="x,x")
