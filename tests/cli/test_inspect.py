"""What leaves a run goes where it was asked to go, and costs nobody a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

ROWS = "a,b,ill\n" + "".join(f"{k % 7},{(k * 5) % 11},{'yes' if k % 7 > 3 else 'no'}\n" for k in range(60))


@pytest.fixture
def model(sparsona: Any, tmp_path: Path) -> Path:
    """A model of two wards, `east.npz`, and the folder of their rows."""
    (tmp_path / "wards").mkdir()
    for ward in ("east", "west"):
        (tmp_path / "wards" / f"{ward}.csv").write_text(ROWS)
    words = ("--target", "ill", "--rounds", 2, "--quiet", "--out", "run")
    assert sparsona("run", "fedavg", "--data", "folder:wards", *words)[0] == 0
    assert sparsona("export", "run", "--client", "east", "--to", "east.npz")[0] == 0
    return tmp_path / "east.npz"


def test_predictions_never_cost_a_file(sparsona: Any, model: Path, tmp_path: Path) -> None:
    rows, before = tmp_path / "wards" / "east.csv", model.read_bytes()
    os.link(rows, tmp_path / "linked.csv")
    for out, what in ((rows, "the rows"), (tmp_path / "linked.csv", "the rows"), (model, "the model")):
        told = f"sparsona: --out {out} is the file of {what}: give another path\n"
        assert sparsona("predict", model, rows, "--out", out) == (2, "", told)
    assert (rows.read_text(), model.read_bytes()) == (ROWS, before)

    other = tmp_path / "wards" / "west.csv"
    told = f"sparsona: {other} is there and is not a file of predictions of sparsona: give another path, or remove it\n"
    assert sparsona("predict", model, rows, "--out", other) == (2, "", told)
    assert other.read_text() == ROWS

    assert sparsona("predict", model, rows, "--out", "res.csv")[0] == 0
    found = (tmp_path / "res.csv").read_text()
    assert found.count("\n") == 61
    (tmp_path / "bad.csv").write_text("a,b\n1,2\nsixty,2\n")
    told = "sparsona: bad.csv, line 3, column 'a': 'sixty' is not a number, which the model needs there; correct it, "
    told += "or leave it empty where it is missing\n"
    assert sparsona("predict", model, "bad.csv", "--out", "res.csv") == (2, "", told)
    assert (tmp_path / "res.csv").read_text() == found, "an error in the rows keeps the old predictions"
    assert sparsona("predict", model, rows, "--out", "res.csv")[0] == 0, "predictions replace predictions"
    assert (tmp_path / "res.csv").read_text() == found
    assert not list(tmp_path.rglob("*.part"))


def test_predictions_go_to_a_new_folder_a_link_and_a_pipe(sparsona: Any, model: Path, tmp_path: Path) -> None:
    assert sparsona("predict", model, "wards/east.csv", "--out", "new/res.csv")[0] == 0
    (tmp_path / "link.csv").symlink_to("new/res.csv")
    assert sparsona("predict", model, "wards/east.csv", "--out", "link.csv")[0] == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert sparsona("predict", model, "wards/east.csv", "--out", "/dev/null")[0] == 0
    assert not Path("/dev/null").is_file()


def test_reports_and_models_replace_only_their_own_kind(sparsona: Any, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "wards" / "east.csv"
    told = f"sparsona: cannot write a report to {rows}: give --out a name that ends in .html\n"
    assert sparsona("report", "run", "--out", rows) == (2, "", told)
    (tmp_path / "page.html").write_text("<p>mine</p>")
    told = "sparsona: page.html is there and is not a report of sparsona: give another path, or remove it\n"
    assert sparsona("report", "run", "--out", "page.html") == (2, "", told)
    for _ in range(2):
        assert sparsona("report", "run", "--out", "r.html")[0] == 0
    for more in (("--format", "npz"), ("--format", "safetensors")):
        told = f"sparsona: {rows} is there and is not a model of sparsona: give another path, or remove it\n"
        assert sparsona("export", "run", "--client", "east", "--to", rows, *more) == (2, "", told)
    assert (rows.read_text(), (tmp_path / "page.html").read_text()) == (ROWS, "<p>mine</p>")
    for ending in ("npz", "safetensors", "onnx"):
        for client in ("west", "east"):
            words = ("export", "run", "--client", client, "--to", "m", "--format", ending)
            assert sparsona(*words) == (0, "wrote m\n", ""), "a model of any format is replaced"
    before = model.read_bytes()
    for name, ending in (("east.npz", "onnx"), ("east.npz", "safetensors"), ("new.ONNX", "npz")):
        told = f"sparsona: cannot write {name} as {ending}: leave --format out, or give a name that ends in .{ending}\n"
        assert sparsona("export", "run", "--client", "east", "--to", name, "--format", ending) == (2, "", told)
    assert model.read_bytes() == before
    assert not (tmp_path / "new.ONNX").exists()
    slim = ("export", "run", "--client", "east", "--slim", "--to")
    (tmp_path / "x.safetensors").write_text("mine")
    assert "x.safetensors is there and is not a model" in sparsona(*slim, "x.safetensors")[2]
    for _ in range(2):
        assert sparsona(*slim, "slim.safetensors")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "east.npz", "wards/east.csv", "--out"),
        ("report", "run", "--out"),
        ("export", "run", "--client", "east", "--format", "npz", "--to"),
    ],
)
def test_a_path_that_cannot_be_written_is_named_without_an_option_that_is_not_there(
    sparsona: Any, model: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "folder.html").mkdir()
    for path, why in (("folder.html", "Is a directory"), ("wards/east.csv/x.html", "wards/east.csv is a file")):
        told = f"sparsona: cannot write {path}: {why}; give another path\n"
        assert sparsona(*words, path) == (2, "", told)
    assert not list(tmp_path.rglob("*.part"))
