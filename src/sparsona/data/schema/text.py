"""Texts and float64 numbers in messages, packed as bytes and bit patterns, since messages hold neither."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.message import Message, Numbers


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
