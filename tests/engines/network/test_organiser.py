"""The dishonest organiser of benchmarks/organiser.py, with fewer proposals: it reads no row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import organiser


@pytest.mark.parametrize("name", organiser.ATTACKS)
def test_an_organiser_reads_no_row(name: str, tmp_path: Path) -> None:
    rows, texts, _ = organiser.attacked(organiser.ATTACKS[name], tmp_path, 20)
    assert (rows, texts) == (0, 0)


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
