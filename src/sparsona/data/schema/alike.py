"""Check that owners' tables have the same inputs, columns and targets; errors name the owner that differs."""

from collections.abc import Mapping, Sequence

from sparsona.data.schema.columns import InputKind, TaskName, as_option, in_capitals
from sparsona.data.schema.target import Kind
from sparsona.errors import DataError

_INPUTS: Mapping[InputKind, str] = {
    "auto": "inputs of any kind",
    "table": "a table",
    "images": "images of uint8",
    "arrays": "arrays of another type than uint8",
    "tokens": "tokens",
}
_KINDS: Mapping[Kind, str] = {"text": "text", "whole": "whole numbers", "decimal": "decimals"}


def same_inputs(inputs: Mapping[str, InputKind]) -> None:
    """Refuse inputs of different kinds, since each kind has its own scale; the keys name the owners."""
    (first, kind), *others = inputs.items()
    for other, found in others:
        if found != kind:
            raise DataError(
                f"{other} has {_INPUTS[found]}, {first} has {_INPUTS[kind]}; give all the same type and the same axes"
            )


def same_columns(columns: Mapping[str, Sequence[str]]) -> None:
    """Refuse different features; the keys name the owners, or their files."""
    first, *others = columns
    for other in others:
        for has, lacks in ((first, other), (other, first)):
            known = frozenset(columns[lacks])
            for name in columns[has]:
                if name not in known:
                    fix = in_capitals(name, columns[lacks]) or (
                        f"; add it (empty cells where it is unknown), or pass --drop {as_option(name)}"
                    )
                    raise DataError(f"{lacks} has no column {name!r}, which {has} has{fix}")


def same_kinds(targets: Mapping[str, tuple[tuple[str, ...], Kind]], task: TaskName = "auto") -> None:
    """Refuse targets that differ in name or kind."""
    (first, (names_, kind)), *others = targets.items()
    for other, (called, held) in others:
        if called != names_:
            raise DataError(
                f"{other} has the target {', '.join(called)}, {first} has {', '.join(names_)}; "
                "call it the same for all, or pass --target"
            )
        if "text" in (kind, held) and kind != held:
            raise DataError(
                f"{other}, column {called[0]!r} holds {_KINDS[held]}, {first} holds {_KINDS[kind]}; "
                f"write them alike, or pass --categorical {as_option(called[0])}"
            )
        if kind != held and task == "auto":
            raise DataError(
                f"{other}, column {called[0]!r} holds {_KINDS[held]}, {first} holds {_KINDS[kind]}; "
                "pass --task regression or --task classification"
            )


def same_category_kind(name: str, numeric: Mapping[str, bool]) -> None:
    """Refuse a category whose names are numbers at some owners and texts at others."""
    (first, kind), *others = numeric.items()
    for other, found in others:
        if found != kind:
            words = {True: "numbers", False: "text"}
            raise DataError(
                f"{other}, column {name!r} holds {words[found]}, {first} holds {words[kind]}; "
                "write the categories alike"
            )
