from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sparsona


def test_a_result_and_its_records_are_frames(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install sparsona[tables]")
    result = sparsona.run("fedavg", clients=3, rounds=3, partition="iid", engine="inprocess", out=tmp_path / "r")
    history, clients = result.history_frame(), result.clients_frame()
    assert history.index.tolist() == [1, 2, 3]
    assert history["bytes/up"].sum() == result.summary["bytes"]["up"]
    assert history.loc[3, "pre/mean"] == pytest.approx(result.summary["accuracy"]["pre"]["mean"])
    assert clients.index.tolist() == ["c0", "c1", "c2"]
    assert clients["pre"].mean() == pytest.approx(history.loc[3, "pre/mean"])
    records = pandas.read_json(tmp_path / "r" / "records.jsonl", lines=True)
    assert len(records) == 9
    assert records["flops"].sum() == result.summary["flops"]


def test_without_pandas_frames_are_light(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = sparsona.run("local", clients=2, rounds=2, partition="iid", engine="inprocess")
    monkeypatch.setitem(sys.modules, "pandas", None)
    history = result.history_frame()
    assert (len(history), history["round"]) == (2, [1, 2])
    assert "pre/mean" in history.columns
    assert "<td>2</td>" in history._repr_html_()
    result.to_csv(tmp_path / "history.csv")
    head, first, _ = (tmp_path / "history.csv").read_text().splitlines()
    assert float(first.split(",")[head.split(",").index("pre/mean")]) == history["pre/mean"][0]
