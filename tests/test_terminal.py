"""What a terminal gets of texts from outside."""

from __future__ import annotations

import io
import logging
import sys

from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from sparsona.errors import one_line, printable
from sparsona.terminal import LineFormatter, PlainConsole, Screen, lines_of

ESCAPE = "\x1b]0;x\x07"


@given(st.text())
def test_a_text_is_printable_and_one_line(text: str) -> None:
    assert printable(text).isprintable()
    assert one_line(text).isprintable()
    assert lines_of(text).count("\n") == text.count("\n")
    assert text.isprintable() == (printable(text) == text)


def test_a_long_text_is_cut() -> None:
    assert printable("x" * 100, 5) == "xxxxx..."


def test_a_console_prints_no_escape_and_reads_no_markup() -> None:
    screen = io.StringIO()
    console = PlainConsole(file=screen, force_terminal=True, color_system=None, width=60)
    table = Table(f"column {ESCAPE}")
    table.add_row("[/bold]")
    table.add_row(Text(f"made elsewhere {ESCAPE}"))
    console.print(table)
    console.print(f"[red]{ESCAPE}")
    said = screen.getvalue()
    assert "\x1b]" not in said
    assert "\x07" not in said
    assert "[/bold]" in said
    assert "[red]\\x1b" in said


def test_a_log_line_is_one_line_and_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError(ESCAPE)
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "of %s", ("a\nb",), sys.exc_info())
    lines = LineFormatter().format(record).splitlines()
    assert lines[0] == "of a\\nb"
    assert len(lines) > 3
    assert all(line.isprintable() for line in lines)


def test_data_on_a_screen_obeys_nothing() -> None:
    out = io.StringIO()
    Screen(out).write(f"prediction\n{ESCAPE}\n")
    assert out.getvalue() == "prediction\n\\x1b]0;x\\x07\n"
