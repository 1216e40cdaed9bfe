"""The limits of the messages before round 1, and their parser.

A hostile owner or server may send anything; a value out of range raises :class:`~sparsona.errors.WireError`.
"""

from typing import Annotated, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sparsona.data.schema.told import first_problem
from sparsona.errors import WireError

MOST_CHARACTERS = 1_000
"""Characters in the name of a column, a category or a class."""

MOST_COLUMNS = 2**17
"""Columns of a table."""

MOST_CATEGORIES = 1_000
"""Categories of one column in one owner's training rows."""

MOST_VALUES = 10_000
"""Categories of one column, or classes, of all owners together; categories of all columns of one owner."""

MOST_ALONE = 1_000
"""Classes that only one owner has."""

MOST_ROWS = 2**40
"""Training rows of one owner."""

MOST_TOKENS = 2**24
"""Words of a vocabulary."""

LARGEST = float(np.finfo(np.float32).max)
"""Largest number of a column: owners refuse numbers beyond float32."""

Name = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Names = Annotated[tuple[Name, ...], Field(max_length=MOST_VALUES)]
Axis = Annotated[int, Field(ge=1, le=2**31)]
Shape = Annotated[tuple[Axis, ...], Field(max_length=8)]
Targets = Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST_COLUMNS)]

T = TypeVar("T")


class WireModel(BaseModel):
    """Base of models that travel as JSON: strict types, no other fields, immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def read_json(kind: TypeAdapter[T], data: bytes, part: str) -> T:
    """Parse the JSON text `data`, the `part` of a message, as `kind`."""
    try:
        return kind.validate_json(data, strict=True)
    except ValidationError as error:
        raise WireError(f"{part!r} cannot be read: {first_problem(error)}") from None
