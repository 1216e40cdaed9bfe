"""Every command in the table of attacks names tests or a script that are there."""

from __future__ import annotations

import re
import shlex

import pytest
from pages import ROOT

PAGE = ROOT / "docs" / "reliability.md"
TABLE = PAGE.read_text(encoding="utf-8").partition("| point | attack |")[2].partition("\n\n")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines()[2:]]
COMMANDS = sorted(
    {command for row in ROWS for command in re.findall(r"`((?:pytest|sudo|python|make) [^`]+)`", row[-1])}
)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_of_the_table_runs_is_there(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
        return
    file = ROOT / next(word for word in words if word.endswith(".py") or "/" in word)
    assert file.exists()
    if words[0] == "pytest" and "-k" in words:
        names = re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
        for part in words[words.index("-k") + 1].split(" or "):
            assert any(part in name for name in names), part


def test_every_point_has_rows_and_every_row_a_command() -> None:
    assert sorted({int(row[0]) for row in ROWS}) == list(range(8))
    assert [row for row in ROWS if "`" not in row[-1]] == []
