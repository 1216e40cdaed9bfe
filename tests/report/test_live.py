"""What `sparsona watch` shows, from the files of runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.report.live import AppendedLines, LiveFolder
from sparsona.runs.records import ClientRecord, RoundReport

SMALL: dict[str, Any] = {"clients": 3, "rounds": 3, "partition": "iid", "engine": "inprocess"}


def test_a_tail_gives_each_whole_line_once_and_begins_again_where_a_file_shrank(tmp_path: Path) -> None:
    tail = AppendedLines(tmp_path / "log")
    assert tail.lines() == []
    tail.file.write_text("a\nb\nhal")
    assert tail.lines() == ["a", "b"]
    with tail.file.open("a") as more:
        more.write("f\n")
    assert tail.lines() == ["half"]
    assert not tail.shrank()
    tail.file.write_text("new\n")
    assert tail.shrank()
    assert tail.lines() == ["new"]


def test_a_run_is_followed_from_its_first_round_to_its_end(tmp_path: Path) -> None:
    live, seen = LiveFolder(tmp_path / "run"), []

    def look(report: RoundReport) -> None:
        seen.append(live.look()["runs"][0])

    done = sparsona.run("fedavg", out=tmp_path / "run", on_round=look, **SMALL)
    assert [run["round"] for run in seen] == [1, 2, 3]
    assert {run["state"] for run in seen} == {"running"}
    assert [len(run["curve"]["round"]) for run in seen] == [1, 2, 3]
    (run,) = live.look()["runs"]
    assert run["state"] == "finished"
    assert run["left"] == 0
    assert run["curve"]["score"][-1] == pytest.approx(done.summary["accuracy"]["pre"]["mean"])
    assert (run["up"], run["down"]) == (done.summary["bytes"]["up"], done.summary["bytes"]["down"])
    assert {client["state"] for client in run["clients"]} == {"answered"}


def test_a_client_whose_reply_is_refused_comes_first_with_the_reason(tmp_path: Path) -> None:
    sparsona.run("fedavg", out=tmp_path / "run", **SMALL)
    (tmp_path / "run" / "summary.json").unlink()
    with (tmp_path / "run" / "records.jsonl").open("a") as records:
        records.write(ClientRecord(4, "c1", took_part=True, arrived=True).text())
        records.write(ClientRecord(4, "c2", took_part=True, refused="its norm is \x1b[2J too large").text())
    (run,) = LiveFolder(tmp_path / "run").look()["runs"]
    first = run["clients"][0]
    assert (first["id"], first["state"], first["failures"]) == ("c2", "refused", 1)
    assert "\x1b" not in first["why"]
    assert "too large" in first["why"]


def test_a_run_without_a_new_round_for_long_is_silent(tmp_path: Path) -> None:
    sparsona.run("fedavg", out=tmp_path / "run", **SMALL)
    (tmp_path / "run" / "summary.json").unlink()
    long_ago = time.time() - 600
    for name in ("records.jsonl", "experiment.toml"):
        os.utime(tmp_path / "run" / name, (long_ago, long_ago))
    (run,) = LiveFolder(tmp_path / "run").look()["runs"]
    assert run["state"] == "silent"
    assert run["age"] >= 599


def test_a_folder_of_runs_shows_all_and_names_the_one_that_cannot_be_read(tmp_path: Path) -> None:
    for seed in (0, 1):
        sparsona.run("fedavg", out=tmp_path / f"fedavg-seed{seed}", seed=seed, **SMALL)
    (tmp_path / "study.json").write_text('{"contenders": ["fedavg", "local"], "seeds": [0, 1]}')
    (tmp_path / "fedavg-seed1" / "records.jsonl").write_text("no record\n")
    found = LiveFolder(tmp_path).look()
    assert [run["name"] for run in found["runs"]] == ["fedavg-seed0"]
    assert found["planned"] == 4
    assert found["problems"][0].startswith("fedavg-seed1: ")


def test_a_node_shows_what_left_the_machine(tmp_path: Path) -> None:
    (tmp_path / "node.log").write_text(
        "12:00 joined\n"
        "12:01 round 1: received 900 bytes (model), trained 0.1 s, sent 300 bytes (values 280)\n"
        "12:02 round 2: received 100 bytes (model), trained 0.1 s, sent 200 bytes (values 180)\n"
    )
    node = LiveFolder(tmp_path).look()["node"]
    assert (node["turns"], node["round"], node["received"], node["sent"]) == (2, 2, 1000, 500)
    assert node["lines"][0] == "12:00 joined"


def test_an_empty_folder_has_neither_runs_nor_a_node(tmp_path: Path) -> None:
    found = LiveFolder(tmp_path).look()
    assert (found["runs"], found["node"], found["problems"]) == ([], None, [])


def test_the_spent_privacy_is_shown_for_a_run_and_for_a_node(tmp_path: Path) -> None:
    live, seen = LiveFolder(tmp_path / "run"), []

    def look(report: RoundReport) -> None:
        seen.append(live.look()["runs"][0]["privacy"])

    settings = {**SMALL, "privacy": {"epsilon": 8.0}, "evaluation": {"post": "participants"}}
    done = sparsona.run("fedavg", out=tmp_path / "run", on_round=look, **settings)
    assert set(seen) == {"at most epsilon 8 by the last round"}
    assert f"epsilon {done.summary['privacy']['largest']:.2f} spent" in live.look()["runs"][0]["privacy"]
    log = tmp_path / "node.log"
    node = LiveFolder(tmp_path)
    log.write_text("2026-11-19 06:00:00 privacy: this run has spent epsilon 1.000 of its 4.000\n")
    assert node.look()["node"]["privacy"] == "this run has spent epsilon 1.000 of its 4.000"
    with log.open("a") as more:
        more.write("2026-11-19 06:00:01 privacy: this run has spent epsilon 2.000 of its 4.000\nanother line\n")
    assert "2.000" in node.look()["node"]["privacy"]
