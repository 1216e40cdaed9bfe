"""Compare owners: the same inputs, columns and targets, and names that differ only in spelling."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from sparsona.data.schema.columns import InputKind, as_option, in_capitals
from sparsona.data.schema.roles import Kind
from sparsona.errors import DataError

if TYPE_CHECKING:
    from sparsona.data.schema.description import Head
    from sparsona.data.schema.rows import Rows

    Compared: TypeAlias = Head | Rows


ColumnKind = Literal["number", "numeric", "text", "empty"]
"""Numbers; categories named by numbers or by texts, or without any value at this owner."""

_INPUTS: Mapping[InputKind, str] = {
    "auto": "inputs of any kind",
    "table": "a table",
    "images": "images of uint8",
    "arrays": "arrays of another type than uint8",
    "tokens": "tokens",
}
_KINDS: Mapping[Kind, str] = {"text": "text", "whole": "whole numbers", "decimal": "decimals"}
_CATEGORIES: Mapping[ColumnKind, str] = {"numeric": "numbers", "text": "text"}


def refuse_different(first: str, a: Compared, other: str, b: Compared) -> None:
    """Refuse two tables that do not match; `first` and `other` name their owners or files."""
    if a.inputs != b.inputs:  # each kind has its own scale
        found = f"{other} has {_INPUTS[b.inputs]}, {first} has {_INPUTS[a.inputs]}"
        raise DataError(f"{found}; give all the same type and the same axes")
    _refuse_other_columns(first, a, other, b)
    _refuse_other_targets(first, a, other, b)
    for option in ("task", "scaling", "shape", "spelling"):
        ours, theirs = getattr(a, option), getattr(b, option)
        if ours != theirs:
            raise DataError(f"{other} has {option} {theirs}, {first} has {ours}; give all clients the same")


def _refuse_other_columns(first: str, a: Compared, other: str, b: Compared) -> None:
    ours, theirs = dict(a.columns), dict(b.columns)
    for has, known, lacks, held in ((first, ours, other, theirs), (other, theirs, first, ours)):
        for name in known:
            if name not in held:
                fix = in_capitals(name, held) or (
                    f"; add it (empty cells where it is unknown), or pass --drop {as_option(name)}"
                )
                raise DataError(f"{lacks} has no column {name!r}, which {has} has{fix}")
    for name, kind in a.columns:
        if "number" in (kind, theirs[name]) and kind != theirs[name]:
            roles = ["a number" if one == "number" else "categorical" for one in (kind, theirs[name])]
            raise DataError(
                f"column {name!r} is {roles[0]} of {first} and {roles[1]} of {other}; "
                "pass the same --categorical to all"
            )
        if "empty" not in (kind, theirs[name]) and kind != theirs[name]:
            raise DataError(
                f"{other}, column {name!r} holds {_CATEGORIES[theirs[name]]}, {first} holds {_CATEGORIES[kind]}; "
                "write the categories alike"
            )


def _refuse_other_targets(first: str, a: Compared, other: str, b: Compared) -> None:
    if a.targets != b.targets:
        raise DataError(
            f"{other} has the target {', '.join(b.targets)}, {first} has {', '.join(a.targets)}; "
            "call it the same for all, or pass --target"
        )
    if a.kind != b.kind and ("text" in (a.kind, b.kind) or a.task == "auto"):
        fix = "pass --task regression or --task classification"
        if "text" in (a.kind, b.kind):
            fix = f"write them alike, or pass --categorical {as_option(b.targets[0])}"
        raise DataError(
            f"{other}, column {b.targets[0]!r} holds {_KINDS[b.kind]}, {first} holds {_KINDS[a.kind]}; {fix}"
        )


def folded(name: str) -> str:
    """Return a name without differences of spelling: capitals, spaces, composed letters.

    >>> folded("Type  A") == folded("type a"), folded("u\\u0308ber") == folded("\\u00fcber")
    (True, True)
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def variants(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that are the same when folded; None if there are none.

    >>> variants(["no", "yes", "Yes"]), variants(["a", "b"])
    (('Yes', 'yes'), None)
    """
    seen: dict[str, str] = {}
    for name in sorted(names):
        if (other := seen.setdefault(folded(name), name)) != name:
            return other, name
    return None


def refuse_variants(column: str, names: Mapping[str, Iterable[str]]) -> None:
    """Refuse a column in which names differ only in spelling; the keys name the owners."""
    told = {owner: set(own) for owner, own in names.items()}
    found = variants(set().union(*told.values()))
    if found is None:
        return
    owners = [next(owner for owner, own in told.items() if name in own) for name in found]
    same_look = len({" ".join(unicodedata.normalize("NFKC", name).split()) for name in found}) == 1
    one, other = (ascii(name).replace("  ", " \\x20") if same_look else repr(name) for name in found)
    raise DataError(
        f"column {column!r}: {one} of {owners[0]} and {other} of {owners[1]} differ only in capitals, spaces or "
        "composed letters; write them alike, or pass --spelling exact where they are two"
    )
