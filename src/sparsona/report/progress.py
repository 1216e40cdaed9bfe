"""Progress of work from Python: a bar in a terminal or a notebook, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sparsona.terminal import PlainConsole


def in_notebook() -> bool:
    """True if this Python runs a notebook's cells."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def interactive() -> bool:
    """True if a person types the commands: in a notebook, in IPython or at Python's prompt."""
    return hasattr(sys, "ps1") or in_notebook()


class Bar:
    """A bar of `total` steps with a note. `shown` None: only in a terminal or a notebook.

    A notebook needs no widgets for it.
    """

    def __init__(self, title: str, total: int, shown: bool | None = None) -> None:
        console = PlainConsole(stderr=True)
        self._title, self._total, self._done, self._note = title, total, 0, ""
        self._began = time.monotonic()
        wanted = shown is not False
        self._page = wanted and in_notebook()
        self._handle: Any = None
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(), console=console, transient=True,
            disable=not wanted or self._page or not (console.is_terminal or shown is True),
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total, note="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._handle is not None:
            self._show("")

    @property
    def done(self) -> int:
        """Return the number of completed steps."""
        return self._done

    def step(self, done: int | None = None, note: str = "") -> None:
        """Note one more completed step, or set the number of completed steps to `done`."""
        self._done = self._done + 1 if done is None else done
        self._note = note or self._note
        self._bar.update(self._task, completed=self._done, note=self._note)
        if self._page:
            left = (time.monotonic() - self._began) / max(self._done, 1) * (self._total - self._done)
            self._show(f"{left:.0f} s left")

    def _show(self, left: str) -> None:
        from IPython.display import HTML, display

        text = escape(" ".join(filter(None, [f"{self._done}/{self._total}", self._note, left])))
        bar = f'<progress value="{self._done}" max="{self._total}"></progress>'
        page = HTML(f"{escape(self._title)} {bar} {text}")
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)
