"""An owner's own data on the command line: columns declared, shown, split, repeated, exported, predicted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Four people's recordings as csv files: a time, a session, a category, a number; the target is first."""
    folder = tmp_path / "people"
    folder.mkdir()
    rng = np.random.default_rng(4)
    for person in ("ann", "bob", "cyd", "dot"):
        lines = ["mood,second,session,place,pulse"]
        for second in range(60):
            place, pulse = rng.choice(["home", "work"]), rng.normal(70, 8)
            mood = "tense" if pulse + 6 * (place == "work") > 73 else "calm"
            lines.append(f"{mood},{second},{second // 10},{place},{pulse:.3f}")
        (folder / f"{person}.csv").write_text("\n".join(lines) + "\n")
    return folder


WORDS = ("--target", "mood", "--categorical", "place", "--drop", "session", "--split", "time:second", "--rounds", 3)


def test_a_folder_from_raw_files_to_predictions(sparsona: Any, people: Path, tmp_path: Path) -> None:
    code, out, err = sparsona("run", "fedavg", "--data", "folder:people", *WORDS, "--out", "r")
    assert code == 0
    assert "│ target mood" in err
    assert "left out: --drop" in err
    assert "left out: split by time" in err
    assert "to agree on the columns" in out
    assert "ann" in out
    assert (tmp_path / "r" / "clients.csv").read_text().startswith("client,train,validation,test,pre,pre_low,pre_high")
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["bytes"]["agreement"]["up"] > 0
    for name in ("bob.npz", "bob.safetensors", "bob.onnx"):
        assert sparsona("export", "r", "--client", "bob", "--to", name)[0] == 0
    code, out, _ = sparsona("predict", "bob.npz", "people/ann.csv")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "prediction,p(calm),p(tense)"
    assert len(lines) == 61
    assert {line.split(",")[0] for line in lines[1:]} == {"calm", "tense"}
    assert (
        sparsona("predict", "bob.safetensors", "people/ann.csv", "--out", "p.csv")[1] == "wrote p.csv: 60 predictions\n"
    )
    assert (tmp_path / "p.csv").read_text() == out
    code, _, err = sparsona("export", "r", "--client", "bob", "--to", "bob.pt")
    assert (code, err) == (
        2,
        "sparsona: cannot write bob.pt: give --format, or a name that ends in .safetensors, .npz, .onnx, .txt\n",
    )


def test_what_is_ambiguous_is_one_line_that_names_the_option(sparsona: Any, people: Path) -> None:
    code, out, err = sparsona("run", "fedavg", "--data", "folder:people")
    assert (code, out) == (2, "")
    assert err == (
        f"sparsona: {people}/ann.csv has no column called label, target, class or y; "
        "pass --target with one of mood, second, session, place, pulse\n"
    )
    code, _, err = sparsona("run", "fedavg", "--data", "folder:people", "--target", "mood", "--task", "guess")
    assert code == 2
    assert "columns.task" in err


def test_a_look_before_a_run(sparsona: Any, people: Path) -> None:
    code, out, _ = sparsona("data", "show", "folder:people", *WORDS[:-2])
    assert code == 0
    assert "4 natural groups: ann, bob, cyd, dot" in out
    assert "4 clients" in out
    assert "time:second; a client" in out
    assert "people: 240 rows of 2 columns, 2 classes, model mlp" in out
    assert "training samples" in out


def test_what_is_doubtful_is_told_by_show_run_and_report(sparsona: Any, people: Path, tmp_path: Path) -> None:
    lines = (people / "bob.csv").read_text().splitlines()
    spoiled = [lines[0], *(",".join([*line.split(",")[:-1], "-999"]) for line in lines[1:11]), *lines[11:]]
    (people / "bob.csv").write_text("\n".join(spoiled) + "\n")
    code, out, _ = sparsona("data", "show", "folder:people", *WORDS[:-2])
    assert code == 0
    (shown,) = [line for line in out.splitlines() if line.startswith("warning: ")]
    assert all(word in shown for word in ("bob.csv", "'pulse'", "10 rows", "--missing -999"))
    code, _, err = sparsona("run", "local", "--data", "folder:people", *WORDS, "--out", "r", "--quiet")
    assert code == 0
    assert shown in err.splitlines()
    assert sparsona("report", "r", "--out", "r.html")[0] == 0
    assert "--missing -999" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "warning" not in sparsona("data", "show", "folder:people", *WORDS[:-2], "--missing", "-999")[1]


def test_groups_are_all_taken(sparsona: Any, people: Path) -> None:
    code, out, _ = sparsona("data", "show", "folder:people", *WORDS[:-2], "--partition", "groups")
    assert code == 0
    assert all(person in out for person in ("ann", "bob", "cyd", "dot"))
    code, _, err = sparsona("data", "show", "folder:people", *WORDS[:-2], "--partition", "groups", "--clients", 9)
    assert code == 2
    assert "9 clients asked for, but the data have 4 natural groups" in err


def test_repeats_pool_several_splits(sparsona: Any, people: Path, tmp_path: Path) -> None:
    words = ("--target", "mood", "--categorical", "place", "--drop", "second", "--split", "group:session")
    code, out, _ = sparsona(
        "run", "local", "--data", "folder:people", *words, "--rounds", 1, "--repeats", 3, "--out", "r"
    )
    assert code == 0
    assert "accuracy of each client, over 3 splits" in out
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["split-0", "split-1", "split-2"]
    tests = [(tmp_path / "r" / f"split-{k}" / "summary.json").read_text() for k in range(3)]
    assert len({json.loads(text)["accuracy"]["pre"]["mean"] for text in tests}) > 1
    code, _, err = sparsona("run", "local", "--data", "folder:people", *WORDS, "--repeats", 2, "--out", "s")
    assert code == 2
    assert "a split by time is one only" in err


def test_an_experiment_runs_from_elsewhere(sparsona: Any, people: Path, tmp_path: Path, monkeypatch: Any) -> None:
    settings = 'method = "local"\ndata = "folder:people"\nrounds = 1\n'
    columns = '[columns]\ntarget = ["mood"]\ncategorical = ["place"]\ndrop = "session,second"\n'
    (tmp_path / "study.toml").write_text(settings + columns)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sparsona("run", "../study.toml", "--out", "r", "--quiet")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert sparsona("run", "elsewhere/r/experiment.toml", "--out", "again", "--quiet")[0] == 0
    one, two = (json.loads((tmp_path / run / "summary.json").read_text()) for run in ("elsewhere/r", "again"))
    assert one["digest"] == two["digest"]


def test_a_finished_run_goes_on(sparsona: Any, tmp_path: Path) -> None:
    words = ("run", "fedavg", "--clients", 2, "--quiet")
    assert sparsona(*words, "--rounds", 2, "--out", "r")[0] == 0
    assert sparsona("run", "r/experiment.toml", "--resume", "--rounds", 4, "--quiet")[0] == 0
    assert sparsona(*words, "--rounds", 4, "--out", "whole")[0] == 0
    longer, whole = (json.loads((tmp_path / run / "summary.json").read_text()) for run in ("r", "whole"))
    assert longer["rounds"] == 4
    assert longer["digest"] == whole["digest"]
    assert longer["bytes"] == whole["bytes"]
    code, _, err = sparsona("run", "r/experiment.toml", "--resume", "--rounds", 3)
    assert code == 2
    assert "r holds a run of 4 rounds, 3 are asked for: give --rounds 4 or more" in err


def test_what_is_not_there_is_not_resumed(sparsona: Any, tmp_path: Path) -> None:
    code, _, err = sparsona("run", "fedavg", "--resume", "--out", "nowhere")
    assert (code, err) == (
        2,
        "sparsona: there is no run in nowhere to resume: check --out, or leave --resume out\n",
    )
    assert not (tmp_path / "nowhere").exists()


def test_a_method_is_not_compared_with_itself(sparsona: Any, tmp_path: Path) -> None:
    code, _, err = sparsona("compare", "fedavg", "fedavg", "--out", "c")
    assert code == 2
    assert err.startswith("sparsona: fedavg is named twice: name it once")
    assert not (tmp_path / "c").exists()


def test_the_version_by_option_and_by_module(sparsona: Any) -> None:
    from sparsona.version import __version__

    assert sparsona("--version")[:2] == (0, f"{__version__}\n")
    done = subprocess.run([sys.executable, "-m", "sparsona", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{__version__}\n"
