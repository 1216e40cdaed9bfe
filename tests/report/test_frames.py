from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sparsona
from sparsona.errors import InputError


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


def test_without_pandas_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    result = sparsona.run("local", clients=2, rounds=1, partition="iid", engine="inprocess")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'sparsona\[tables\]'"):
        result.history_frame()
