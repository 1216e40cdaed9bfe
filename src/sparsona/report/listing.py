"""Lists for the terminal: names with what they are, and a method's options."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rich.table import Table

from sparsona.methods import METHODS


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    out = Table(title=title, title_justify="left")
    for column in columns:
        out.add_column(column, overflow="fold")
    for row in rows:
        out.add_row(*row)
    return out


def method_entry(name: str) -> dict[str, Any]:
    """A method for a program: its name, what it does, its options with their defaults."""
    kind = METHODS.get(name)
    about = (kind.__doc__ or "").strip().partition("\n")[0]
    return {"name": name, "about": about, "options": {f.name: getattr(kind, f.name) for f in dataclasses.fields(kind)}}


def method_options(name: str) -> tuple[str, list[tuple[str, str, str]]]:
    """What a method's documentation says, and its options: name, type with its range, default."""
    kind = METHODS.get(name)
    hints = get_type_hints(kind, include_extras=True)
    rows = [(f.name, _type(hints[f.name]), str(getattr(kind, f.name))) for f in dataclasses.fields(kind)]
    text = "\n".join(line.strip() for line in (kind.__doc__ or "").strip().splitlines())
    return text, rows


def _type(hint: Any) -> str:
    """A type and its range as a person writes them.

    >>> from pydantic import Field
    >>> _type(Annotated[float, Field(gt=0, le=1)]), _type(Literal["fresh", "global"]), _type(tuple[int, ...] | None)
    ('float > 0, <= 1', 'fresh | global', '[int, ...] or none')
    """
    if get_origin(hint) is Annotated:
        kind, *extras = get_args(hint)
        marks = [mark for extra in extras for mark in getattr(extra, "metadata", [extra])]
        signs = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
        ranges = [f"{sign} {getattr(mark, key)}" for mark in marks for key, sign in signs if hasattr(mark, key)]
        return f"{_type(kind)} {', '.join(ranges)}".strip()
    if get_origin(hint) is Literal:
        return " | ".join(str(value) for value in get_args(hint))
    if hint is type(None):
        return "none"
    if get_origin(hint) is tuple:
        inner = [_type(part) for part in get_args(hint) if part is not Ellipsis]
        return f"[{', '.join(inner)}{', ...' if Ellipsis in get_args(hint) else ''}]"
    if get_args(hint):
        return " or ".join(_type(part) for part in get_args(hint))
    return str(getattr(hint, "__name__", hint))
