"""What every logger is told, and what happens to a run whose logger fails."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.errors import InputError
from sparsona.report import loggers
from sparsona.report.loggers import LOGGERS


class Notes:
    """A logger that keeps what it is told."""

    made: list[Notes]

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder, self.settings = folder, settings
        self.rounds: dict[int, Mapping[str, float]] = {}
        self.files: list[str] | None = None
        self.made.append(self)

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self.rounds[round] = values

    def close(self, files: Sequence[Path]) -> None:
        assert all(file.exists() for file in files)
        self.files = [file.name for file in files]


class Failing(Notes):
    """A logger whose program goes away after the first round."""

    def log(self, round: int, values: Mapping[str, float]) -> None:
        super().log(round, values)
        if round > 1:
            raise ConnectionError("gone")


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> list[Notes]:
    monkeypatch.setattr(Notes, "made", [], raising=False)
    monkeypatch.setitem(LOGGERS._found, "notes", Notes)
    monkeypatch.setitem(LOGGERS._found, "failing", Failing)
    return Notes.made


def run(out: Path, **more: Any) -> sparsona.Result:
    return sparsona.run("fedavg", clients=3, partition="iid", engine="inprocess", out=out, **more)


def test_a_logger_gets_settings_scalars_of_rounds_and_clients_and_the_report(
    tmp_path: Path, notes: list[Notes]
) -> None:
    result = run(tmp_path / "a", rounds=2, lr=0.05, report_to="notes")
    (one,) = notes
    assert (one.folder, one.settings["training.lr"], one.settings["method"]) == (tmp_path / "a", 0.05, "fedavg")
    assert list(one.rounds) == [1, 2]
    last = one.rounds[2]
    assert last["pre/mean"] == pytest.approx(result.summary["accuracy"]["pre"]["mean"])
    assert sum(last[f"clients/c{i}/bytes up"] for i in range(3)) == last["bytes/up"] > 0
    assert {"clients/c0/pre", "clients/c0/loss"} <= set(last)
    assert one.files == ["experiment.toml", "summary.json", "report.html"]


def test_a_resumed_run_goes_on_in_its_log_and_gives_the_same_digest(tmp_path: Path, notes: list[Notes]) -> None:
    run(tmp_path / "a", rounds=2, report_to="notes", on_round=lambda report: report.round < 1)
    resumed = run(tmp_path / "a", rounds=2, resume=True, report_to=["notes"])
    assert [list(one.rounds) for one in notes] == [[1], [2]]
    assert resumed.summary["digest"] == run(tmp_path / "b", rounds=2).summary["digest"]


def test_an_interrupted_run_logs_no_files(tmp_path: Path, notes: list[Notes]) -> None:
    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a", rounds=2, report_to="notes", on_round=stop)
    assert (list(notes[0].rounds), notes[0].files) == ([1], [])


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, notes: list[Notes], caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path / "a", rounds=3, report_to="failing,notes")
    failing, other = notes
    assert (list(failing.rounds), failing.files) == ([1, 2], None)
    assert list(other.rounds) == [1, 2, 3]
    assert sum("not logged to failing any more: gone" in one for one in caplog.messages) == 1


def test_many_clients_are_not_logged_each(tmp_path: Path, notes: list[Notes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "CLIENTS", 2)
    run(tmp_path / "a", rounds=1, report_to="notes")
    assert not any(name.startswith("clients/") for name in notes[0].rounds[1])


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_without_its_package_one_line_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("torch.utils.tensorboard", "mlflow.entities", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "sparsona.report.loggers.programs", raising=False)
    monkeypatch.delitem(LOGGERS._found, name, raising=False)
    with pytest.raises(InputError, match=rf"report_to {name} needs {name}: pip install 'sparsona\[{name}\]'"):
        run(tmp_path / "a", rounds=1, report_to=name)


def test_a_wrong_name_or_no_directory_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown logger 'tensorbord'; did you mean 'tensorboard'"):
        run(tmp_path / "a", rounds=1, report_to="tensorbord")
    with pytest.raises(InputError, match="name its directory"):
        sparsona.run("fedavg", clients=3, rounds=1, partition="iid", report_to="notes")
