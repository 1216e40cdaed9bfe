"""Lists for the terminal, which load nothing heavy."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from sparsona.methods import METHODS
from sparsona.options import Option, options_of


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for the terminal."""
    out = Table(title=title, title_justify="left")
    for column in columns:
        out.add_column(column, overflow="fold")
    for row in rows:
        out.add_row(*row)
    return out


def default(value: Any) -> str:
    """Return a default as a user would write it.

    >>> default(None), default(()), default(False), default(0.1)
    ('none', 'none', 'false', '0.1')
    """
    if value is None or value == () or value == {} or value == "":
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def method_entry(name: str) -> tuple[str, list[Option]]:
    """Return a method's description and its options."""
    kind = METHODS.get(name)
    return (kind.__doc__ or "").strip().partition("\n")[0], options_of(kind)
