"""``run``: what a folder means in the place of a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("again", [("--resume", "--out", "r"), ("r", "--resume"), ("r/", "--resume", "--out", "r")])
def test_a_run_is_continued_by_its_folder_alone(sparsona: Any, tmp_path: Path, again: tuple[str, ...]) -> None:
    began = ("run", "fedavg", "--clients", 3, "--partition", "iid", "--quiet")
    assert sparsona(*began, "--rounds", 1, "--out", "r")[0] == 0
    assert sparsona("run", *again, "--rounds", 2, "--quiet") == (0, "", "")
    assert sparsona(*began, "--rounds", 2, "--out", "whole")[0] == 0
    one, two = (json.loads((tmp_path / run / "summary.json").read_text()) for run in ("r", "whole"))
    assert one["digest"] == two["digest"]
    assert not (tmp_path / "runs").exists()


def test_what_is_to_be_run_is_asked_for_in_one_line(sparsona: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "local").mkdir()
    assert sparsona("run", "local", "--clients", 2, "--rounds", 1, "--quiet", "--out", "r")[0] == 0
    what = "run what? give a method or an experiment file; to go on with a run, --resume --out FOLDER"
    none = "empty holds no run: give a method, an experiment file, or the folder of a run"
    there = "r holds a run: add --resume to go on with it, or run r/experiment.toml again with another --out"
    lost = "nowhere holds no run: give a method, an experiment file, or the folder of a run"
    for words, told in (
        ((), what),
        (("--resume",), what),
        (("--out", "r"), what),
        (("empty",), none),
        (("--resume", "--out", "empty"), none),
        (("--resume", "--out", "nowhere"), lost),
        (("r",), there),
    ):
        assert sparsona("run", *words) == (2, "", f"sparsona: {told}\n")
