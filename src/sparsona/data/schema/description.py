"""An owner's description of its training rows, and how the server reads it.

For a numeric column it holds the count, the mean and the sum of squared deviations; for categories and classes, the
names that occur. The server trusts none of it: a description outside of the ranges in
:mod:`sparsona.data.schema.limits` is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, model_validator

from sparsona.data.dataset import Array, Indices
from sparsona.data.schema import limits
from sparsona.data.schema.alike import ColumnKind
from sparsona.data.schema.bounds import declared_description
from sparsona.data.schema.columns import InputKind, Scaling, Spelling, TaskName, as_option
from sparsona.data.schema.limits import Name, Names, Shape, Targets, WireModel
from sparsona.data.schema.moments import ColumnMoments, moments, pooled
from sparsona.data.schema.roles import Kind, tells_classes
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import MOST_INPUTS, class_names
from sparsona.errors import DataError, WireError
from sparsona.message import Message

CHUNK = 1024
"""Number of samples of several axes per step of computing moments."""


class Head(WireModel):
    """The columns of an owner; most owners of a federation send the same head."""

    columns: Annotated[tuple[tuple[Name, ColumnKind], ...], Field(max_length=limits.MOST_COLUMNS)]
    targets: Targets
    kind: Kind
    inputs: InputKind
    shape: Shape
    task: TaskName
    scaling: Scaling
    spelling: Spelling = "alike"

    @model_validator(mode="after")
    def _complete(self) -> Head:
        if len(dict(self.columns)) < len(self.columns):
            raise ValueError("two columns have one name")
        if (self.inputs == "table") == bool(self.shape):
            raise ValueError("samples of several axes have a shape, a table has none")
        if math.prod(self.shape) > MOST_INPUTS:
            raise ValueError(f"a sample has more than {MOST_INPUTS} numbers")
        return self

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers, in the owner's order."""
        return [name for name, kind in self.columns if kind == "number"]

    @property
    def width(self) -> int:
        """Return the number of scaled columns or channels."""
        return self.shape[0] if self.shape else len(self.numbers)

    @property
    def values_per_row(self) -> int:
        """Return the most known numbers per row for each column or channel."""
        return math.prod(self.shape[1:])

    @property
    def tells_classes(self) -> bool:
        """True if the target may be classes, as :attr:`Rows.tells_classes`."""
        return tells_classes(self.task, self.targets, self.kind)

    @property
    def scales(self) -> bool:
        """True if inputs are scaled by the agreed moments."""
        return self.scaling == "agreed" and self.inputs != "tokens"


Categories = dict[Name, Annotated[tuple[Name, ...], Field(max_length=limits.MOST_CATEGORIES)]]
_HEAD, _NAMES, _CATEGORIES = TypeAdapter(Head), TypeAdapter[Names](Names), TypeAdapter[Categories](Categories)


@dataclass(frozen=True, eq=False)
class OwnerDescription:
    """An owner's checked description of its training rows; moments are in the owner's order of columns."""

    head: Head
    rows: int
    missing: Array
    inputs: ColumnMoments | None
    largest: int
    categories: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...]
    target: ColumnMoments | None

    @classmethod
    def read(cls, message: Message, heads: dict[bytes, Head]) -> OwnerDescription:
        """Read the description in a message; raises :class:`~sparsona.errors.WireError` for impossible values.

        `heads` caches parsed heads by their bytes, since most owners send the same head.
        """
        data = limits.text_in(message, "head")
        head = heads[data] = heads.get(data) or limits.read_json(_HEAD, data, "head")
        rows = message.integer("rows")
        if not 1 <= rows <= limits.MOST_ROWS:
            raise WireError(f"the description claims {rows} training rows, expected 1 to {limits.MOST_ROWS}")
        classes: tuple[str, ...] = ()
        if head.tells_classes:
            classes = limits.read_json(_NAMES, limits.text_in(message, "classes"), "classes")
        if head.tells_classes and head.kind != "text":
            _check_numeric(head.targets[0], classes)
        told = head.scaling == "agreed" and not head.tells_classes and head.task != "multilabel"
        largest = message.integer("largest") if head.inputs == "tokens" else 0
        if not 0 <= largest < limits.MOST_TOKENS:
            raise WireError(f"the largest token is {largest}, expected 0 to {limits.MOST_TOKENS - 1}")
        return cls(
            head,
            rows,
            _flags(message, len(head.numbers)),
            _moments("inputs", message, head.width, rows * head.values_per_row) if head.scales else None,
            largest,
            _checked_categories(message, head),
            classes,
            _moments("target", message, len(head.targets), rows) if told else None,
        )

    def in_order(self, numbers: Sequence[str]) -> OwnerDescription:
        """Return the description with the columns of numbers in this order."""
        own = self.head.numbers
        if own == numbers:
            return self
        at = {name: k for k, name in enumerate(own)}
        places = [at[name] for name in numbers]
        inputs = self.inputs
        if inputs is not None:
            inputs = ColumnMoments(inputs.count[places], inputs.mean[places], inputs.squares[places])
        return replace(self, missing=self.missing[places], inputs=inputs)


def describe_rows(rows: Rows, train: Indices) -> Message:
    """Describe an owner's training rows for the server; declared columns follow their declaration."""
    seen = rows.take(train)
    told = declared_description(seen, len(train)) if rows.bounds else {}
    head: dict[str, Any] = {
        "columns": told.get("columns") or rows.columns,
        "targets": rows.targets,
        "kind": told.get("kind") or seen.kind,
        "inputs": rows.inputs,
        "shape": rows.shape,
        "task": rows.task,
        "scaling": rows.scaling,
    }
    if rows.spelling != "alike":
        head["spelling"] = rows.spelling
    parts: dict[str, Any] = {"head": limits.pack_text(head), "rows": len(train)}
    if rows.numbers.shape[1]:
        parts["missing"] = told["missing"] if told else np.isnan(seen.numbers).any(axis=0).astype(np.uint8)
    if rows.scaling == "agreed" and rows.inputs != "tokens":
        parts |= _packed("inputs", told["inputs"] if told else input_moments(seen))
    if rows.inputs == "tokens":
        parts["largest"] = _largest_token(seen.block)
    if rows.categories:
        named = {name: _category_list(seen, name) for name in seen.categories}
        parts["categories"] = limits.pack_text(told["categories"] if told else named)
    if seen.tells_classes:
        parts["classes"] = limits.pack_text(_class_list(seen))
    elif rows.task != "multilabel" and rows.scaling == "agreed":
        parts |= _packed("target", told["target"] if told else moments(seen.target))
    return Message(**parts)


def input_moments(rows: Rows) -> ColumnMoments:
    """Return the moments per column of a table, or per channel of samples of several axes."""
    if rows.block is None:
        return moments(rows.numbers)
    scale = 255.0 if rows.inputs == "images" else 1.0
    chunks = np.split(rows.block, range(CHUNK, len(rows.block), CHUNK))
    return pooled(moments(np.moveaxis(c, 1, -1).reshape(-1, c.shape[1]).astype(np.float64) / scale) for c in chunks)


def _largest_token(block: Array | None) -> int:
    found = int(block.max()) if block is not None else 0
    if found >= limits.MOST_TOKENS:
        raise DataError(
            f"a token is {found}, the largest can be {limits.MOST_TOKENS - 1}; number the words from 0 without gaps"
        )
    return found


def _category_list(seen: Rows, name: str) -> list[str]:
    found = [value for value in np.unique(seen.categories[name]).tolist() if value]
    fix = f"pass --drop {as_option(name)}"
    if len(found) > limits.MOST_CATEGORIES:
        most = f"at most {limits.MOST_CATEGORIES} may be"
        raise DataError(
            f"column {name!r} has {len(found)} categories in the training rows, {most}; {fix}, or group them"
        )
    _refuse_long(f"column {name!r}", found, fix)
    return found


def _class_list(seen: Rows) -> list[str]:
    """Return the declared names of classes, or else the names in the training rows."""
    target = seen.targets[0]
    found: list[str] = np.unique(class_names(seen)).tolist()
    if seen.classes:
        unknown = sorted(set(found) - set(seen.classes))
        if unknown:
            raise DataError(f"target {target!r} holds {unknown[0]!r}, which columns.classes does not name; add it")
        found = sorted(seen.classes)
    if len(found) > limits.MOST_VALUES:
        fix = "choose another --target, or pass --task regression where it is a number"
        raise DataError(f"target {target!r} has {len(found)} classes, at most {limits.MOST_VALUES} are possible; {fix}")
    _refuse_long(f"target {target!r}", found, "choose another --target")
    return found


def _refuse_long(where: str, names: Iterable[str], fix: str) -> None:
    longest = max(map(len, names), default=0)
    if longest > limits.MOST_CHARACTERS:
        raise DataError(
            f"{where} holds a text of {longest} characters, a name has at most {limits.MOST_CHARACTERS}; {fix}"
        )


def _packed(name: str, found: ColumnMoments) -> dict[str, Any]:
    if not len(found.mean):
        return {}
    return {
        f"{name}.known": found.count.astype(np.int64),
        f"{name}.mean": limits.pack_doubles(found.mean),
        f"{name}.squares": limits.pack_doubles(found.squares),
    }


def _moments(name: str, message: Message, width: int, most: int) -> ColumnMoments:
    """Read moments of `width` columns with at most `most` known values each, none beyond float32."""
    if not width:
        return ColumnMoments(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    known = message.numbers(f"{name}.known")
    mean, squares = (limits.unpack_doubles(message, f"{name}.{part}", width) for part in ("mean", "squares"))
    if known.dtype != np.int64 or len(known) != width or (known < 0).any() or (known > min(most, 2**53)).any():
        raise WireError(f"{name}.known does not hold {width} counts from 0 to {min(most, 2**53)}")
    if (
        (np.abs(mean) > limits.LARGEST).any()
        or (squares < 0).any()
        or (squares > known * (2 * limits.LARGEST) ** 2).any()
    ):
        raise WireError(f"{name} has a mean or a sum of squares that no float32 numbers have")
    return ColumnMoments(known, mean, squares)


def _flags(message: Message, size: int) -> Array:
    if not size:
        return np.zeros(0, np.bool_)
    found = message.numbers("missing")
    if found.dtype != np.uint8 or len(found) != size:
        raise WireError(f"'missing' is {found.dtype} of length {len(found)}, expected {size} flags")
    return found.astype(np.bool_)


def _checked_categories(message: Message, head: Head) -> Mapping[str, tuple[str, ...]]:
    kinds = {name: kind for name, kind in head.columns if kind != "number"}
    if not kinds:
        return {}
    found = limits.read_json(_CATEGORIES, limits.text_in(message, "categories"), "categories")
    if set(found) != set(kinds):
        raise WireError("'categories' holds other columns than the head")
    if sum(map(len, found.values())) > limits.MOST_VALUES:
        raise WireError(f"'categories' holds more than {limits.MOST_VALUES} names")
    for name, values in found.items():
        if kinds[name] == "numeric":
            _check_numeric(name, values)
    return found


def _check_numeric(column: str, names: Iterable[str]) -> None:
    try:
        good = all(math.isfinite(float(name)) for name in names)
    except ValueError:
        good = False
    if not good:
        raise WireError(f"column {column!r} is said to hold numbers, and does not")
