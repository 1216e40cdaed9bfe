"""Progress of work: a bar in a terminal or a notebook; elsewhere nothing, or a line per step."""

import sys
import time
from html import escape
from typing import Any, Literal, Self, TypeAlias

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sparsona.report.console import share, size
from sparsona.runs.records import RoundReport
from sparsona.terminal import PlainConsole

Shown: TypeAlias = bool | Literal["lines"] | None
"""True to show progress; None: in terminals and notebooks only; "lines": as None, and elsewhere as lines."""


def in_notebook() -> bool:
    """True if this Python runs a notebook's cells."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def interactive() -> bool:
    """True if a person types the commands: in a notebook, in IPython or at Python's prompt."""
    return hasattr(sys, "ps1") or in_notebook()


class Bar:
    """A bar of `total` steps with a note. A notebook needs no widgets for it."""

    def __init__(self, title: str, total: int, shown: Shown = None) -> None:
        self.title, self.total, self.done, self.note = title, total, 0, ""
        self._console = PlainConsole(stderr=True)
        self._began, self._first = time.monotonic(), 0
        self._page = shown is not False and in_notebook()
        self._lines = shown == "lines" and not self._page and not self._console.is_terminal
        self._handle: Any = None
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False), TimeRemainingColumn(),
            console=self._console, transient=True,
            disable=shown is False or self._page or not (self._console.is_terminal or shown is True),
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._handle is not None:
            self._show("")

    def step(self, done: int | None = None, note: str = "") -> None:
        """Note one more completed step, or set their number to `done`, which may count those of an earlier process."""
        if done is not None and not self.done:
            self._first = max(done - 1, 0)
        self.done = self.done + 1 if done is None else done
        self.note = note or self.note
        self._bar.update(self._task, completed=self.done, note=self.note)
        if self._page:
            self._show(self.left)

    def say(self, line: str) -> None:
        """Print a line if progress is shown as lines."""
        if self._lines:
            self._console.print(line, soft_wrap=True, highlight=False)

    @property
    def left(self) -> str:
        """Return the time left as text."""
        pace = (time.monotonic() - self._began) / max(self.done - self._first, 1)
        return f"{pace * (self.total - self.done):.0f} s left"

    def _show(self, left: str) -> None:
        from IPython.display import HTML, display

        text = escape(" ".join(filter(None, [f"{self.done}/{self.total}", self.note, left])))
        bar = f'<progress value="{self.done}" max="{self.total}"></progress>'
        page = HTML(f"{escape(self.title)} {bar} {text}")
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)


class RoundBar(Bar):
    """The bar of one run, with its last score and the bytes so far."""

    def __init__(self, title: str, rounds: int, metric: str, shown: Shown = None) -> None:
        super().__init__(title, rounds, shown)
        self._metric, self._bytes, self._score = metric, 0, ""

    def round(self, report: RoundReport) -> None:
        """Note a completed round."""
        self._bytes += report.up.total + report.down.total
        if "pre" in report.scores:
            self._score = f"{self._metric} {share(report.scores['pre']['mean'], self._metric)}"
        told = ", ".join(filter(None, [self._score, size(self._bytes)]))
        self.step(report.round, told)
        self.say(f"{self.title}: round {report.round}/{self.total}, {told}, {self.left}")
