"""Output and logs: control characters in texts from outside become visible codes.

File, column, class and client names, a remote owner's reasons: all pass :func:`sparsona.errors.printable` here.
"""

import logging
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from sparsona.errors import printable


class PlainConsole(Console):
    """A console that reads no markup in texts and prints no control character of theirs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text with its control characters as visible codes, so that a table's columns have their true widths."""
        return super().render_str(lines_of(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render any output, also a `Text` that was made elsewhere."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=lines_of(segment.text))


class Screen:
    """A terminal stream that turns control characters into visible codes."""

    def __init__(self, screen: IO[str]) -> None:
        self._screen = screen

    def write(self, text: str, /) -> int:
        """Write a text without control characters."""
        self._screen.write(lines_of(text))
        return len(text)


class LineFormatter(logging.Formatter):
    """One line per message: a line break in a name cannot forge another line. A traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """The traceback of a record, without control characters."""
        return lines_of(super().formatException(ei))


def lines_of(text: str) -> str:
    """A printable text that keeps its line breaks."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
