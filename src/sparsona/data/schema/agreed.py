"""The schema as the server's message to all owners, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, model_validator

from sparsona.data.schema.columns import InputKind, Scaling
from sparsona.data.schema.limits import (
    MOST_COLUMNS,
    MOST_TOKENS,
    Name,
    Names,
    Shape,
    Targets,
    WireModel,
    read_json,
)
from sparsona.data.schema.moments import Doubles
from sparsona.data.schema.schema import Category, Feature, Number, Schema
from sparsona.data.schema.target import Task
from sparsona.data.schema.text import pack_doubles, pack_text, text_in, unpack_doubles
from sparsona.errors import WireError
from sparsona.message import Message

NumberColumn = tuple[Name, bool]
"""A column of numbers, and whether some owner has missing values in it."""

CategoryColumn = tuple[Name, bool, Names]
"""A column of categories, whether their names are numbers, and the names."""


class SharedSchema(WireModel):
    """A schema without its means and deviations."""

    task: Task
    targets: Targets
    classes: Names
    numeric_classes: bool
    inputs: InputKind
    shape: Shape
    scaling: Scaling
    columns: Annotated[tuple[NumberColumn | CategoryColumn, ...], Field(max_length=MOST_COLUMNS)]
    vocabulary: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> SharedSchema:
        if len({column[0] for column in self.columns}) < len(self.columns):
            raise ValueError("two columns have one name")
        if (self.inputs == "table") == bool(self.shape) or (self.inputs == "tokens") != bool(self.vocabulary):
            raise ValueError("samples of several axes have a shape, tokens a vocabulary, a table none of them")
        return self

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [column[0] for column in self.columns if len(column) == 2]

    @property
    def width(self) -> int:
        """Return the number of scaled columns or channels."""
        return self.shape[0] if self.shape else len(self.numbers)

    def message(self, scaling: Mapping[str, Doubles]) -> Message:
        """Return the message to all owners; `scaling` holds mean, std, center and spread. Empty parts are left out."""
        parts: dict[str, Any] = {"schema": pack_text(self.model_dump(mode="json", exclude_none=True))}
        parts |= {name: pack_doubles(values) for name, values in scaling.items() if len(values)}
        return Message(**parts)


_AGREED = TypeAdapter(SharedSchema)


def schema_of(agreed: Message) -> Schema:
    """Return the schema in the server's message; raises :class:`~sparsona.errors.WireError` for an invalid one."""
    tree = read_json(_AGREED, text_in(agreed, "schema"), "schema")
    mean, std = _doubles(agreed, "mean", tree.width), _deviations(agreed, "std", tree.width)
    targets = len(tree.targets) if "center" in agreed else 0
    center, spread = _doubles(agreed, "center", targets), _deviations(agreed, "spread", targets)
    scaled = tree.inputs != "table" and tree.scaling == "agreed"
    return Schema(
        task=tree.task,
        targets=tree.targets,
        classes=tree.classes,
        numeric_classes=tree.numeric_classes,
        center=tuple(center.tolist()),
        spread=tuple(spread.tolist()),
        inputs=tree.inputs,
        features=_features(tree, mean, std),
        shape=tree.shape,
        mean=tuple(mean.tolist()) if scaled else (),
        std=tuple(std.tolist()) if scaled else (),
        scaling=tree.scaling,
        vocabulary=tree.vocabulary or 0,
    )


def _features(tree: SharedSchema, mean: Doubles, std: Doubles) -> tuple[Feature, ...]:
    at = {name: k for k, name in enumerate(tree.numbers)}
    return tuple(
        Number(column[0], float(mean[at[column[0]]]), float(std[at[column[0]]]), column[1])
        if len(column) == 2
        else Category(column[0], column[2], column[1])
        for column in tree.columns
    )


def _doubles(agreed: Message, part: str, size: int) -> Doubles:
    return unpack_doubles(agreed, part, size) if size else np.zeros(0)


def _deviations(agreed: Message, part: str, size: int) -> Doubles:
    found = _doubles(agreed, part, size)
    if (found <= 0).any():
        raise WireError(f"{part!r} holds a deviation that is not above 0")
    return found
