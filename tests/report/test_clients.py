"""The clients of a run, and who is left out of its means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparsona.report.console import clients_table, closing, pool_lines
from sparsona.runs.clients import ClientScores, ExpertScore, Score, write_clients


@pytest.mark.parametrize(
    ("small", "in_table", "in_closing"),
    [
        (1, "1 such client is in no mean", "without 1 client that has fewer than 5 test rows"),
        (2, "2 such clients are in no mean", "without 2 clients that have fewer than 5 test rows"),
    ],
)
def test_who_has_too_few_rows_is_counted_in_words(small: int, in_table: str, in_closing: str) -> None:
    clients = [ClientScores(f"c{number}", 9, 3, 2, {}) for number in range(small)]
    table = clients_table(clients, "accuracy", 5)
    assert table.caption == f"-: fewer than 5 test rows say nothing; {in_table}"
    summary: dict[str, Any] = {"method": "fedavg", "data": "digits", "metric": "accuracy", "rounds": 1}
    summary |= {"accuracy": {}, "picked": {}}
    summary["too_few_test_rows"] = {"fewest": 5, "clients": [one.client for one in clients]}
    ended = closing(summary)
    assert (ended.title, ended.caption) == ("fedavg on digits: accuracy after 1 round", in_closing)


def test_a_client_reads_what_each_expert_adds(tmp_path: Path) -> None:
    experts = (ExpertScore("trees", 0.4, 3.25), ExpertScore("own", 0.35, 5.0), ExpertScore("shared", 0.25, 4.0))
    clients = [ClientScores(f"w{number}", 9, 3, 20, {"pre": Score(2.5)}, {}, experts) for number in range(3)]
    write_clients(tmp_path / "clients.csv", [*clients, ClientScores("small", 9, 3, 2, {}, {}, experts)])
    first, _, last = pool_lines(tmp_path, "rmse", most=2)
    assert first.startswith("w0: alone with trees 3.25, together 2.5 (rmse, 20 test rows)")
    assert first.endswith("0.60"), "of the shared model: as sent, and after training"
    assert last.startswith("and 1 more"), "who has no score is told nothing"
    assert pool_lines(tmp_path / "nowhere", "rmse") == []
