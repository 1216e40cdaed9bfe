"""Progress in a notebook, and where nobody looks."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

import sparsona
from sparsona.report.progress import Bar, RoundBar, in_notebook, interactive


class Cell:
    """What a notebook's cell shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, page: str, display_id: bool) -> Cell:
        assert display_id
        self.update(page)
        return self

    def update(self, page: str) -> None:
        self.shown.append(page)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    found, shell = Cell(), SimpleNamespace(kernel=object())
    module, inner = ModuleType("IPython"), ModuleType("IPython.display")
    vars(module).update(get_ipython=lambda: shell)
    vars(inner).update(HTML=str, display=found.display)
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    return found


def test_a_notebook_shows_one_bar_that_moves(cell: Cell) -> None:
    assert in_notebook()
    assert interactive()
    with Bar("fedavg", 3) as bar:
        bar.step(note="accuracy <90 %")
        bar.step(3)
    assert 'value="1" max="3"' in cell.shown[0]
    assert "&lt;90 %" in cell.shown[0]
    assert 'value="3" max="3"' in cell.shown[-1]
    assert bar.done == 3


def test_it_can_be_turned_off(cell: Cell, capfd: pytest.CaptureFixture[str]) -> None:
    with Bar("fedavg", 3, shown=False) as bar:
        bar.step()
    assert cell.shown == []
    assert capfd.readouterr() == ("", "")


def test_without_terminal_and_notebook_there_is_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    with Bar("fedavg", 3) as bar:
        bar.step()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("quiet", [False, True])
def test_without_a_terminal_each_round_is_one_line_with_score_bytes_and_time_left(
    quiet: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    done = sparsona.run("fedavg", clients=2, rounds=2, partition="iid", engine="inprocess")
    with RoundBar("fedavg", 2, "accuracy", False if quiet else "lines") as bar:
        for report in done.history:
            bar.round(report)
    lines = capfd.readouterr().err.splitlines()
    expected = [rf"fedavg: round {n}/2, accuracy [\d.]+ %, [\d.]+ \w+, \d+ s left" for n in (1, 2)]
    assert len(lines) == (0 if quiet else 2)
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(expected, lines, strict=False))
