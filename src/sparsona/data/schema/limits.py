"""The messages before round 1: their limits, and texts and float64 numbers, which a message packs as bytes and bits.

A hostile owner or server may send anything; a value out of range raises :class:`~sparsona.errors.WireError`.
"""

import json
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sparsona.data.schema.schema import first_problem
from sparsona.errors import WireError
from sparsona.message import Message, Numbers

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


def pack_text(tree: Any) -> Numbers:
    """Return a tree of lists, dicts, texts and numbers as the bytes of its JSON.

    >>> pack_text(["ä"]).tolist()
    [91, 34, 195, 164, 34, 93]
    """
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return np.frombuffer(text.encode(), np.uint8)


def text_in(message: Message, part: str) -> bytes:
    """Return the bytes of the text in a part.

    >>> json.loads(text_in(Message(names=pack_text({"a": [1, "ö"]})), "names"))
    {'a': [1, 'ö']}
    """
    found = message.numbers(part)
    if found.dtype != np.uint8:
        raise WireError(f"{part!r} is {found.dtype}, expected the bytes of a text")
    return found.tobytes()


def pack_doubles(values: npt.ArrayLike) -> Numbers:
    """Return float64 numbers as int64 of the same bits."""
    return np.ascontiguousarray(values, np.float64).reshape(-1).view(np.int64)


def unpack_doubles(message: Message, part: str, size: int) -> npt.NDArray[np.float64]:
    """Return the `size` finite numbers in a part.

    >>> unpack_doubles(Message(mean=pack_doubles([0.1, 2.0])), "mean", 2).tolist()
    [0.1, 2.0]
    """
    found = message.numbers(part)
    if found.dtype != np.int64 or len(found) != size:
        raise WireError(f"{part!r} is {found.dtype} of length {len(found)}, expected {size} doubles")
    values = found.view(np.float64)
    if not np.isfinite(values).all():
        raise WireError(f"{part!r} holds a number that is not finite")
    return values
