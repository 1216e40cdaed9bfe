"""When models are measured, which of them a client keeps, and when a run has come far enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.federation.evaluation import Evaluation
from sparsona.message import Vector
from sparsona.prepare import prepare
from sparsona.report.measured import measure
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord, RoundReport, RunLog

FAST: dict[str, Any] = {"clients": 4, "rounds": 8, "training": {"lr": 0.5, "batch": 16}}


def vector(result: sparsona.Result, client: str) -> Vector:
    model = result.models[client].model
    assert isinstance(model, np.ndarray)
    return model


def log_of(scores: list[float], higher: bool = True) -> RunLog:
    """The log of one client with these validation scores."""
    log = RunLog({"a": 5}, higher)
    for number, score in enumerate(scores, 1):
        log.write([ClientRecord(number, "a").measured("pre", score, score)])
    return log


@pytest.mark.parametrize(("higher", "best"), [(True, 2), (False, 1)])
def test_the_best_round_is_the_earliest_with_the_best_validation_score(higher: bool, best: int) -> None:
    assert log_of([0.1, 0.9, 0.9, 0.5], higher).best_round == best


def test_a_run_stalls_after_so_many_evaluations_without_a_better_score() -> None:
    log = log_of([0.1, 0.9, 0.9, 0.5])
    assert log.stalled(2)
    assert not log.stalled(3)
    assert not log.stalled(0)
    assert not log_of([]).stalled(1)


def test_a_round_counts_as_due_by_its_number() -> None:
    assert [round for round in range(8) if Evaluation(every=3).due(round, 8)] == [2, 5, 7]


@pytest.mark.parametrize("method", ["fedavg", "fedpse", "ditto", "local"])
def test_the_kept_model_is_that_of_the_best_round(method: str) -> None:
    last = sparsona.run(method, **FAST)
    best = sparsona.run(method, evaluation={"keep": "best"}, **FAST)
    round = last.summary["picked"]["pre"]["round"]
    assert best.summary["picked"]["pre"]["round"] == round
    until = sparsona.run(method, **{**FAST, "rounds": round})
    for client in best.models:
        np.testing.assert_allclose(vector(best, client), vector(until, client), atol=1e-6)


def test_a_client_may_keep_the_model_of_its_own_best_round(tmp_path: Path) -> None:
    result = sparsona.run("local", evaluation={"keep": "best-per-client"}, out=tmp_path / "run", **FAST)
    scores: dict[str, dict[int, float]] = {}
    for line in RunDirectory(tmp_path / "run").lines():
        scores.setdefault(line.client, {})[line.round] = line.validation["pre"]
    best = {client: max(found, key=lambda round: (found[round], -round)) for client, found in scores.items()}
    for client, round in best.items():
        until = sparsona.run("local", **{**FAST, "rounds": round})
        np.testing.assert_allclose(vector(result, client), vector(until, client), atol=1e-6)


def test_a_run_that_stalls_ends_early_and_goes_on_with_more_patience(tmp_path: Path) -> None:
    whole = sparsona.run("fedavg", evaluation={"keep": "best"}, **FAST)
    short = sparsona.run("fedavg", evaluation={"keep": "best", "patience": 1}, out=tmp_path / "run", **FAST)
    assert short.summary["rounds"] == len(short.history) < 8
    longer = sparsona.run("fedavg", evaluation={"keep": "best"}, out=tmp_path / "run", resume=True, **FAST)
    assert longer.summary["rounds"] == 8
    assert longer.summary["digest"] == whole.summary["digest"]
    assert len(sparsona.load(tmp_path / "run").history) == 8


def test_the_caller_may_end_a_run() -> None:
    result = sparsona.run("fedavg", on_round=lambda report: report.round < 3, **FAST)
    assert result.summary["rounds"] == len(result.history) == 3


def test_a_resumed_run_keeps_the_same_model(tmp_path: Path) -> None:
    settings = {**FAST, "evaluation": {"keep": "best"}}
    whole = sparsona.run("fedspa", **settings)

    def stop(report: RoundReport) -> None:
        if report.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sparsona.run("fedspa", out=tmp_path / "run", on_round=stop, **settings)
    again = sparsona.run("fedspa", out=tmp_path / "run", resume=True, **settings)
    assert again.summary["digest"] == whole.summary["digest"]
    for client in whole.models:
        np.testing.assert_array_equal(vector(again, client), vector(whole, client))


@pytest.mark.parametrize("keep", ["best", "best-per-client"])
def test_the_scores_of_a_run_are_those_of_the_models_that_clients_keep(keep: str, tmp_path: Path) -> None:
    result = sparsona.run("ditto", evaluation={"keep": keep}, out=tmp_path / "run", **FAST)
    data = prepare({"method": "ditto", **FAST}).setup.federation
    scores = {one.client: one.scores["pre"].value for one in result.clients}
    for client, model in result.models.items():
        rows = data.splits[client].test
        right = np.mean(model.predict(data.data.inputs[rows]) == data.data.targets[rows])
        assert scores[client] == pytest.approx(right)
    assert result.summary["accuracy"]["pre"]["mean"] == pytest.approx(np.mean(list(scores.values())))
    counted = measure(tmp_path / "run").within()
    assert counted is not None
    assert counted.test["pre"] == pytest.approx(scores)
    assert sparsona.load(tmp_path / "run").scores == result.scores
