"""Lists for the terminal: names with descriptions, and a method's options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from sparsona.methods import METHODS
from sparsona.options import options_of


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for the terminal."""
    out = Table(title=title, title_justify="left")
    for column in columns:
        out.add_column(column, overflow="fold")
    for row in rows:
        out.add_row(*row)
    return out


def method_entry(name: str) -> dict[str, Any]:
    """Return a method as data: its name, description, and options with their defaults."""
    kind = METHODS.get(name)
    about = (kind.__doc__ or "").strip().partition("\n")[0]
    return {"name": name, "about": about, "options": {option.name: option.default for option in options_of(kind)}}


def default(value: Any) -> str:
    """Return a default as a user would write it.

    >>> default(None), default(()), default(False), default(0.1)
    ('none', 'none', 'false', '0.1')
    """
    if value is None or value == () or value == {} or value == "":
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def method_options(name: str) -> tuple[str, list[tuple[str, str, str, str]]]:
    """Return a method's description and its options: name, type with its range, default, meaning."""
    kind = METHODS.get(name)
    rows = [(option.name, option.kind, default(option.default), option.text) for option in options_of(kind)]
    return (kind.__doc__ or "").strip().partition("\n")[0], rows
