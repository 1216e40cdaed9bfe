from __future__ import annotations

from pathlib import Path

import pytest

import sparsona
from sparsona.errors import RunError
from sparsona.runs.about import read_about


def test_a_run_says_what_its_clients_hold(tmp_path: Path) -> None:
    result = sparsona.run("local", clients=3, rounds=1, partition="sorted:1.0", engine="inprocess", out=tmp_path)
    about = read_about(tmp_path)
    assert (about.metric, about.higher_is_better) == ("accuracy", True)
    assert about.weights == result.summary["weights"]
    assert sorted(about.clients) == ["c0", "c1", "c2"]
    assert all(sum(one.classes) == one.train for one in about.clients.values())
    assert sum(one.train + one.validation + one.test for one in about.clients.values()) == 1797
    assert about.class_names == tuple("0123456789")
    assert about.environment["torch"]


def test_a_damaged_or_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"about\.json is missing: continue the run with --resume"):
        read_about(tmp_path)
    (tmp_path / "about.json").write_text("{}")
    with pytest.raises(RunError, match=r"about\.json is damaged"):
        read_about(tmp_path)
