"""The dishonest organiser of benchmarks/organiser.py, with fewer proposals: it reads no row."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import knobs
import organiser

LONG = "every knob"
"""The attack that takes longer than the others together."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == LONG else name for name in organiser.ATTACKS]
)
def test_an_organiser_reads_no_row(name: str, tmp_path: Path) -> None:
    rows, texts, _ = organiser.attacked(organiser.ATTACKS[name], tmp_path, 20)
    assert (rows, texts) == (0, 0)


def test_the_search_for_rows_finds_one_that_is_there(tmp_path: Path) -> None:
    raw = np.round(np.random.default_rng(1).normal(50, 9, (30, 3)), 4)
    scaled = (raw - raw.mean(0)) / raw.std(0)
    for kind in (np.float32, np.float64):
        hidden = b"abc" + np.concatenate([raw[4], [7.0], scaled[9]]).astype(kind).tobytes()
        found = {tuple(row) for row in knobs.rows_in(hidden, scaled, raw)}
        assert {tuple(raw[4]), tuple(raw[9])} <= found


def test_an_honest_run_still_trains(tmp_path: Path) -> None:
    """Else nothing would be read because nothing works."""
    asking = organiser.Organiser(organiser.Owner(tmp_path))
    run = asking.joined()
    assert run is not None
    update = run.fit(0)
    assert update is not None
    assert update.any()


def test_crafted_weights_read_no_row_of_an_owner_with_a_privacy_budget(tmp_path: Path) -> None:
    (attack,) = organiser.REMAINING.values()
    rows, texts, answered = organiser.attacked(attack, tmp_path, 20, epsilon=8.0)
    assert (rows, texts) == (0, 0)
    assert answered > 2, "it has trained"
