"""``run``: what a folder means in the place of a method."""

from __future__ import annotations

import json
import traceback
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
        (("runs/nosuch",), "there is no runs/nosuch: give a method, an experiment file, or the folder of a run"),
        (("--resume", "--out", "empty"), none),
        (("--resume", "--out", "nowhere"), lost),
        (("r",), there),
    ):
        assert sparsona("run", *words) == (2, "", f"sparsona: {told}\n")


OWN = ("--data", "folder:wards", "--target", "ill", "--categorical", "sex", "--quiet")


def relabel(text: str) -> str:
    """Three rows' targets the other way round."""
    head, *rows = text.splitlines()
    other = {"yes": "no", "no": "yes"}
    changed = [f"{row.rpartition(',')[0]},{other[row.rpartition(',')[2]]}" for row in rows[:3]]
    return "\n".join([head, *changed, *rows[3:]]) + "\n"


@pytest.mark.parametrize("engine", ["inprocess", "pool"])
def test_a_run_does_not_go_on_with_other_data(sparsona: Any, wards: Path, tmp_path: Path, engine: str) -> None:
    more = ("--engine", engine, "--workers", 2)
    assert sparsona("run", "fedavg", *OWN, *more, "--rounds", 1, "--out", "r")[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    file = wards / "east.csv"
    rows = file.read_text()
    told = "sparsona: r was begun with other data (client east has changed): restore the file, or choose another --out"
    half = "\n".join(rows.splitlines()[:31]) + "\n"
    turned = "".join(",".join(line.split(",")[::-1]) + "\n" for line in rows.splitlines())
    for other in (relabel(rows), rows.replace("f,", "m,", 1), rows.replace(".", "1.", 1), half, turned):
        assert other != rows
        file.write_text(other)
        code, _, err = sparsona("run", "--resume", "--out", "r", "--rounds", 2, "--quiet")
        assert (code, err.splitlines()[-1]) == (2, told), "warnings about the table may come before it"
        assert {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()} == before
    file.write_text(rows)
    assert sparsona("run", "--resume", "--out", "r", "--rounds", 2, "--quiet") == (0, "", "")


def test_the_order_of_columns_and_what_an_older_version_wrote_do_not_stop_a_run(
    sparsona: Any, wards: Path, tmp_path: Path
) -> None:
    for run in ("r", "older"):
        assert sparsona("run", "fedavg", *OWN, "--rounds", 1, "--out", run)[0] == 0
    assert sparsona("run", "fedavg", *OWN, "--rounds", 2, "--out", "whole")[0] == 0
    file = wards / "west.csv"
    cells = [line.split(",") for line in file.read_text().splitlines()]
    file.write_text("".join(f"{ill},{sex},{age},{pulse}\n" for age, pulse, sex, ill in cells))
    assert sparsona("run", "r", "--resume", "--rounds", 2, "--quiet") == (0, "", "")
    one, two = (json.loads((tmp_path / run / "summary.json").read_text())["digest"] for run in ("r", "whole"))
    assert one == two

    about = tmp_path / "older" / "about.json"
    known = json.loads(about.read_text())
    for client in known["clients"].values():
        assert len(client.pop("hash")) == 32
    about.write_text(json.dumps(known))
    file.write_text(file.read_text().replace("f,", "m,", 1))
    assert sparsona("run", "older", "--resume", "--rounds", 2, "--quiet") == (0, "", "")
    assert all(client["hash"] for client in json.loads(about.read_text())["clients"].values()), "it is noted now"


def test_a_strangers_walk_from_the_command_to_the_optimiser_is_short(
    sparsona: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step itself counts. Who adds a frame to this way takes another one out."""
    from sparsona.training import step as rule

    root, step, deepest = Path(rule.__file__).parents[1], rule.Sgd.step, list[str]()

    def watched(*arguments: Any) -> None:
        ours = [f for f in traceback.extract_stack() if Path(f.filename).is_relative_to(root)]
        if len(ours) > len(deepest):
            deepest[:] = [f"{Path(f.filename).stem}.{f.name}" for f in ours]
        step(*arguments)

    monkeypatch.setattr(rule.Sgd, "step", watched)
    few = ("--clients", 2, "--rounds", 1, "--engine", "inprocess", "--trainer", "plain", "--quiet", "--out", "r")
    assert sparsona("run", "fedavg", *few)[0] == 0
    assert deepest[0] == "__init__.main"
    assert len([*deepest, "Sgd.step"]) <= 16, deepest
