from __future__ import annotations

from pathlib import Path

import pytest

import sparsona


def test_a_run_is_in_the_file_store_with_settings_scalars_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed: pip install sparsona[mlflow]")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "wards")
    for rounds in (2, 3):
        result = sparsona.run(
            "local", clients=2, rounds=rounds, partition="iid", engine="inprocess", out=tmp_path / "a",
            resume=rounds > 2, report_to="mlflow",
        )  # fmt: skip
    client = MlflowClient()
    (one,) = client.search_runs([client.get_experiment_by_name("wards").experiment_id])
    assert (one.info.status, one.info.run_name, one.data.params["method"]) == ("FINISHED", "a", "local")
    history = client.get_metric_history(one.info.run_id, "pre/mean")
    assert [metric.step for metric in history] == [1, 2, 3]
    assert history[-1].value == pytest.approx(result.summary["accuracy"]["pre"]["mean"])
    assert "clients/c0/pre" in one.data.metrics
    assert {file.path for file in client.list_artifacts(one.info.run_id)} == {
        "experiment.toml", "report.html", "summary.json",
    }  # fmt: skip
