from __future__ import annotations

import math

import pytest

from sparsona.runs.scores import summarise


def test_the_bottom_decile_is_the_specs_position() -> None:
    scores = {f"c{i:02}": i / 100 for i in range(20)}
    sizes = dict.fromkeys(scores, 1)
    out = summarise(scores, sizes)
    assert out["bottom_decile"] == 0.02  # sorted[floor(20 / 10)]
    assert out["worst"] == 0.0
    assert out["mean"] == out["weighted"] == pytest.approx(0.095)


def test_lower_is_better_turns_the_order() -> None:
    scores = {f"c{i:02}": float(i) for i in range(10)}
    out = summarise(scores, dict.fromkeys(scores, 1), higher_is_better=False)
    assert (out["worst"], out["bottom_decile"]) == (9.0, 8.0)


def test_clients_without_a_score_do_not_count() -> None:
    assert summarise({"a": math.nan, "b": 0.5}, {"a": 3, "b": 1})["mean"] == 0.5
    assert summarise({"a": math.nan}, {"a": 3})["mean"] is None
    assert summarise({}, {})["worst"] is None
