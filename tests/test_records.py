from __future__ import annotations

import json
import math
from pathlib import Path

from sparsona.records import Journal, Line
from sparsona.wire import Ledger


def line(round: int, client: str, pre: float, check: float) -> Line:
    return Line(round, client, True, True, Ledger(10, 0, 100), Ledger(10, 5, 50), 100, 50).measured("pre", pre, check)


def test_a_line_survives_and_is_strict_json() -> None:
    one = line(2, "c1", 0.5, math.nan)
    text = one.text()
    assert json.loads(text)["validation"] == {"pre": None}
    assert text == Line.parse(text).text()


def test_reports_and_the_picked_round() -> None:
    journal = Journal({"a": 1, "b": 3}, higher_is_better=True)
    for round, (pre, check) in enumerate([(0.2, 0.3), (0.9, 0.5), (0.4, 0.5)], 1):
        journal.write([line(round, "b", pre, check), line(round, "a", pre + 0.1, check)])
    report = journal.rounds[0]
    assert (report.up.total, report.down.total, report.paper_up) == (130, 220, 100)
    assert report.scores["pre"]["weighted"] == (0.3 + 3 * 0.2) / 4
    picked = journal.picked("pre")
    assert picked is not None
    assert picked.round == 2, "the earliest of equals"
    assert journal.picked("post") is None
    last = journal.last("pre")
    assert last is not None
    assert last["worst"] == 0.4


def test_rewind_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    journal = Journal({"a": 1}, True, file)
    journal.write([line(1, "a", 0.1, 0.1)])
    length = journal.length()
    journal.write([line(2, "a", 0.2, 0.2)])
    with file.open("a") as out:
        out.write('{"round":3,"cli')  # killed while writing
    again = Journal({"a": 1}, True, file)
    again.rewind(length)
    assert [report.round for report in again.rounds] == [1]
    assert again.rounds == journal.rounds[:1]
    assert file.read_text().count("\n") == 1
