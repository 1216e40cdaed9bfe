"""Data sets that are made of others: made once, and where the other one is absent whoever runs a case is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsona.data import load
from sparsona.errors import DataError
from sparsona_papers._excerpt import derived, ensure, excerpt, source_of
from sparsona_papers._registry import PAPERS
from sparsona_papers.reproduce import reproduce


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without data sets but those that packages bring along."""
    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_some_samples_are_a_data_set_of_their_own(nowhere: Path) -> None:
    spec = excerpt("digits", 100)
    assert spec == f"npz:{nowhere}/excerpts/digits-100.npz"
    assert len(load(spec)) == 100
    before = (nowhere / "excerpts/digits-100.npz").stat().st_mtime_ns
    assert excerpt("digits", 100) == spec
    assert (nowhere / "excerpts/digits-100.npz").stat().st_mtime_ns == before, "made once"
    assert [path.name for path in (nowhere / "excerpts").iterdir()] == ["digits-100.npz"]


def test_an_excerpt_knows_what_it_is_made_of() -> None:
    assert source_of(excerpt("emnist:byclass", 50)) == "emnist"
    assert source_of("npz:/somewhere/else.npz") == "npz"
    ensure("npz:/somewhere/else.npz")  # not ours


def test_a_file_is_made_as_soon_as_it_is_needed(nowhere: Path) -> None:
    spec = derived("two", "digits", _two)
    (nowhere / "excerpts/two.npz").unlink()
    ensure(spec)
    assert len(load(spec)) == 2


def _two(data: Any) -> Mapping[str, Any]:
    return {"x": np.asarray(data.inputs[:2]), "y": np.asarray(data.targets[:2])}


@pytest.mark.parametrize(
    ("paper", "size", "case", "data"),
    [("pfedgate", "paper", "emnist-local-1", "emnist"), ("pfednet", "quick", "parts-local-0", "covtype")],
)
def test_a_case_whose_data_are_absent_names_the_command_that_gets_them(
    nowhere: Path, paper: str, size: Any, case: str, data: str
) -> None:
    assert any(known.name == case for known in PAPERS.get(paper)(size).cases), "it can be listed"
    with pytest.raises(DataError, match=f"data set '{data}' is not here .*: run `sparsona data get {data}`") as told:
        reproduce(paper, size, nowhere / "out", case, lambda text: None)
    assert "\n" not in str(told.value)
