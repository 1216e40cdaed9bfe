from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sparsona
from sparsona.cli import app
from sparsona.data.dataset import ClientSplit, Dataset, Federation
from sparsona.errors import RunError
from sparsona.runs.about import About, ClientData, changed_clients, changed_since, read_about, row_hashes, write_about


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
    assert len({one.hash for one in about.clients.values()}) == 3
    assert all(len(one.hash) == 32 for one in about.clients.values())


def test_a_damaged_or_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"about\.json is missing: continue the run with --resume"):
        read_about(tmp_path)
    (tmp_path / "about.json").write_text("{}")
    with pytest.raises(RunError, match=r"about\.json is damaged"):
        read_about(tmp_path)


def test_a_hash_is_one_clients_own_and_sees_inputs_targets_and_parts() -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(0, 255, (40, 1, 4, 4)).astype(np.uint8), rng.integers(0, 3, 40)

    def hashes(inputs: np.ndarray, targets: np.ndarray, cut: int = 15) -> dict[str, str]:
        def split(name: str, first: int) -> ClientSplit:
            parts = np.split(np.arange(first, first + 20), [10, cut])
            return ClientSplit(name, *parts)

        return row_hashes(Federation(Dataset("d", inputs, targets, 3), {"a": split("a", 0), "b": split("b", 20)}))

    before = hashes(inputs, targets)
    assert before == hashes(inputs.copy(), targets.copy())
    for place in (0, 12, 19):
        other, labels = inputs.copy(), targets.copy()
        other[place, 0, 3, 3] ^= 1
        labels[place] = (labels[place] + 1) % 3
        for now in (hashes(other, targets), hashes(inputs, labels)):
            assert now["a"] != before["a"]
            assert now["b"] == before["b"]
    assert hashes(inputs, targets, 16)["a"] != before["a"]


def test_clients_that_have_come_or_gone_have_changed(tmp_path: Path) -> None:
    def about(*names: str, hashed: bool = True) -> About:
        clients = {name: ClientData(8, 0, 2, (), f"of {name}" if hashed else "") for name in names}
        return About("accuracy", True, 10, clients)

    write_about(tmp_path, about("east", "west"))
    assert changed_clients(tmp_path, about("east", "west")) == []
    assert changed_clients(tmp_path, about("east")) == ["west"]
    assert changed_clients(tmp_path, about("east", "north", "west")) == ["north"]
    assert changed_clients(tmp_path, about("east", hashed=False)) == [], "a server that sees no rows"
    write_about(tmp_path, about("east", "west", hashed=False))
    assert changed_clients(tmp_path, about("east")) == [], "an older version noted nothing"


def test_the_environment_names_commit_packages_and_command(tmp_path: Path) -> None:
    sparsona.run("local", clients=2, rounds=1, engine="inprocess", out=tmp_path / "run")
    about = read_about(tmp_path / "run")
    assert about.packages["torch"] == about.environment["torch"]
    assert {"numpy", "pydantic", "safetensors", "pytest"} <= about.packages.keys(), "all that is imported"
    assert about.command, "how it was started"
    assert re.fullmatch(r"[0-9a-f]{40}\+?|", about.environment.get("commit", ""))


def test_a_run_that_is_repeated_says_what_has_changed(tmp_path: Path) -> None:
    sparsona.run("local", clients=2, rounds=1, engine="inprocess", out=tmp_path / "run")
    assert changed_since(tmp_path / "run") == []
    about = read_about(tmp_path / "run")
    older = replace(
        about,
        packages={**about.packages, "a-plug-in": "1.0"},
        environment={**about.environment, "numpy": "1.0", "cores": about.environment["cores"]},
    )
    write_about(tmp_path / "run", older)
    found = changed_since(tmp_path / "run")
    assert [line.split()[0] for line in found] == ["a-plug-in", "numpy"]
    asked = ["run", str(tmp_path / "run" / "experiment.toml"), "--out", str(tmp_path / "again")]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert "digest: the same" in told.output
    assert "numpy was 1.0" in told.output
