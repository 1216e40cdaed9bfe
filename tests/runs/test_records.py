from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.errors import RunError
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import AGAIN, ClientRecord, RoundReport, RunLog, by_round, read_records
from sparsona.runs.scores import exploded
from sparsona.wire import Ledger


def line(round: int, client: str, pre: float, check: float) -> ClientRecord:
    return ClientRecord(round, client, True, True, Ledger(10, 0, 100), Ledger(10, 5, 50), 100, 50).measured(
        "pre", pre, check
    )


def test_a_line_survives_and_is_strict_json() -> None:
    one = line(2, "c1", 0.5, math.nan)
    text = one.text()
    assert json.loads(text)["validation"] == {"pre": None}
    assert text == ClientRecord.parse(text).text()


def test_reports_and_the_picked_round() -> None:
    run_log = RunLog({"a": 1, "b": 3}, higher_is_better=True)
    for round, (pre, check) in enumerate([(0.2, 0.3), (0.9, 0.5), (0.4, 0.5)], 1):
        run_log.write([line(round, "b", pre, check), line(round, "a", pre + 0.1, check)])
    report = run_log.rounds[0]
    assert (report.up.total, report.down.total, report.paper_up) == (130, 220, 100)
    assert report.scores["pre"]["weighted"] == (0.3 + 3 * 0.2) / 4
    picked = run_log.picked("pre")
    assert picked is not None
    assert picked.round == 2, "the earliest of equals"
    assert run_log.picked("post") is None
    last = run_log.kept("pre")
    assert last is not None
    assert last["worst"] == 0.4


def test_the_organiser_is_told_once_of_a_client_that_is_refused_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "records.jsonl"
    run_log = RunLog({"a": 1, "b": 1}, higher_is_better=True, file=file)
    for round in range(1, 13):
        bad = line(round, "b", 0.5, 0.5)
        bad.refused = "" if round == 4 else "too large"
        run_log.write([line(round, "a", 0.5, 0.5), bad])
        assert len(caplog.records) == (round >= 4 + AGAIN), f"round {round}"
    assert "b" in caplog.text
    assert run_log.refused == {"b": 11}
    again = RunLog({"a": 1, "b": 1}, higher_is_better=True, file=file)
    again.rewind(file.stat().st_size, 12)
    assert again.refused == {"b": 11}, "a resumed run counts on"


def test_losses_are_compared_with_the_first_round_that_trained(tmp_path: Path) -> None:
    run_log = RunLog(dict.fromkeys("abcd", 1), higher_is_better=True, file=tmp_path / "records.jsonl")
    assert run_log.losses.told() == {}
    rounds = [{"a": math.nan}, {"a": 1.0, "b": 3.0, "d": 0.5}, {"a": 1.05}, {"b": 2.5, "c": 400.0}]
    for round, losses in enumerate(rounds, 1):
        run_log.write(ClientRecord(round, client, loss=loss) for client, loss in losses.items())
    told = {"clients": 4, "rose": 2, "exploded": 0, "first": 1.0, "last": 1.05}
    assert run_log.losses.told() == told, "c came late, to a bad model"
    assert exploded(told) == ""
    run_log.losses.add([ClientRecord(5, "b", loss=31.0), ClientRecord(5, "d", loss=9.0)])
    told = run_log.losses.told()
    assert told["exploded"] == 1, "b is ten times above its own beginning, d is not ten times above the others'"
    assert "1 of 4 clients" in exploded(told)
    run_log.losses.last |= {"b": 2.5, "d": 0.5}
    again = RunLog({}, higher_is_better=True, file=tmp_path / "records.jsonl")
    again.rewind(run_log.length(), 4)
    assert again.losses == run_log.losses


def test_rewind_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    run_log = RunLog({"a": 1}, True, file)
    run_log.write([line(1, "a", 0.1, 0.1)])
    length = run_log.length()
    run_log.write([line(2, "a", 0.2, 0.2)])
    with file.open("a") as out:
        out.write('{"round":3,"cli')  # killed while writing
    again = RunLog({"a": 1}, True, file)
    again.rewind(length, 1)
    assert [report.round for report in again.rounds] == [1]
    assert again.rounds == run_log.rounds[:1]
    assert file.read_text().count("\n") == 1


def test_rounds_without_a_line_are_counted_again(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    run_log = RunLog({"a": 1}, True, file)
    for lines in ([], [line(2, "a", 0.1, 0.1)], [], []):
        run_log.write(lines)
    again = RunLog({"a": 1}, True, file)
    again.rewind(run_log.length(), 4)
    assert [report.round for report in again.rounds] == [1, 2, 3, 4]
    assert again.rounds == run_log.rounds
    assert again.write([line(5, "a", 0.3, 0.3)]).round == 5


def test_a_journal_without_a_file_goes_on_with_the_right_number() -> None:
    run_log = RunLog({"a": 1}, True)
    run_log.rewind(0, 7)
    assert run_log.write([]).round == 8


@pytest.mark.parametrize("lost", [0, 1, 200])
def test_a_file_that_has_lost_something_is_left_as_it_is(tmp_path: Path, lost: int) -> None:
    file = tmp_path / "records.jsonl"
    run_log = RunLog({"a": 1}, True, file)
    run_log.write([line(1, "a", 0.1, 0.1)])
    whole, length = file.read_bytes(), run_log.length()
    file.write_bytes(whole[:-lost] if lost else whole.replace(b'"round":1', b'"rounds":'))
    before = file.read_bytes()
    with pytest.raises(RunError, match=r"records.jsonl is damaged \(.*\): run it again into another --out$"):
        RunLog({"a": 1}, True, file).rewind(length, 1)
    assert file.read_bytes() == before
    file.unlink()
    with pytest.raises(RunError, match=f"0 bytes are left of {length}"):
        RunLog({"a": 1}, True, file).rewind(length, 1)
    assert not file.exists()


def test_a_line_of_a_round_that_was_never_done_is_damage(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    run_log = RunLog({"a": 1}, True, file)
    run_log.write([line(3, "a", 0.1, 0.1)])
    with pytest.raises(RunError, match="a line of round 3, where the checkpoint has seen 2"):
        RunLog({"a": 1}, True, file).rewind(run_log.length(), 2)


class Stop(Exception):
    pass


def test_a_resumed_run_has_the_history_of_an_unbroken_one_where_rounds_are_empty(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "clients": 3, "rounds": 12, "seed": 1, "partition": "iid", "engine": "inprocess",
        "evaluation": {"every": 0}, "schedule": {"availability": 0.1},
    }  # fmt: skip
    whole = sparsona.run("fedavg", **settings)
    assert [report.round for report in whole.history] == list(range(1, 13))
    assert not all(report.took_part for report in whole.history[:7]), "some rounds are without a record"

    def stop(report: object) -> None:
        raise Stop

    for _ in range(8):
        run = tmp_path / "run"
        with pytest.raises(Stop):
            sparsona.run("fedavg", out=run, resume=run.exists(), on_round=stop, **settings)
    told: list[int] = []
    resumed = sparsona.run(
        "fedavg", out=tmp_path / "run", resume=True, on_round=lambda report: told.append(report.round), **settings
    )
    assert told == [9, 10, 11, 12]
    assert resumed.history == whole.history


def test_of_a_run_that_goes_on_the_rounds_of_its_last_checkpoint_are_read(tmp_path: Path) -> None:
    def stop(report: RoundReport) -> None:
        if report.round == 2:
            raise Stop

    with pytest.raises(Stop):
        sparsona.run("local", clients=2, rounds=5, partition="iid", engine="inprocess", out=tmp_path, on_round=stop)
    with (tmp_path / "records.jsonl").open("a") as out:
        out.write('{"round":3,"cli')  # killed while writing
    rounds = by_round(RunDirectory(tmp_path).lines())
    assert {number: [line.client for line in lines] for number, lines in rounds.items()} == {
        1: ["c0", "c1"],
        2: ["c0", "c1"],
    }
    (tmp_path / "checkpoint" / "manifest.json").unlink()
    assert RunDirectory(tmp_path).lines() == [], "no round is complete"
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory(tmp_path / "elsewhere").lines()


@pytest.mark.parametrize(
    "change", [{"round": "x"}, {"down": {"bound": 1e999}}, {"seconds": 1e999}, {"test": {"pre": []}}]
)
def test_a_line_of_other_types_is_damaged(change: dict[str, Any], tmp_path: Path) -> None:
    line = {**json.loads(ClientRecord(1, "a").text()), **change}
    (tmp_path / "records.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(RunError, match="is damaged"):
        read_records(tmp_path / "records.jsonl")
