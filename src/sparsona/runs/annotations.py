"""Whether a value that was read from a file is of the type that a dataclass annotates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from sparsona.by_client import ByClient


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is of the annotated type `hint`, as far as a stored state can tell.

    >>> fits((1, 2), tuple[int, ...]), fits({"a": "b"}, dict[str, int]), fits(None, str | None), fits(1, Any)
    (True, False, True, True)

    >>> fits(np.zeros(2), np.ndarray[Any, np.dtype[Any]]), fits(3, Any)
    (True, True)

    Lists come back as tuples and numpy's numbers as Python's. What an annotation leaves open fits. Only the class of
    a dataclass is checked, not its fields.
    """
    if hint is Any:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and _is_array_of(value, arguments)
    kind = origin if origin is not None else type(None) if hint is None else hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if issubclass(kind, str):
        return isinstance(value, str)
    if issubclass(kind, ByClient):
        return isinstance(value, ByClient)
    if issubclass(kind, Mapping):
        return isinstance(value, dict) and (not arguments or _are_items(value, *arguments))
    if issubclass(kind, Sequence):
        return isinstance(value, tuple) and (not arguments or _are_elements(value, kind, arguments))
    if issubclass(kind, Set):
        return isinstance(value, frozenset)
    if issubclass(kind, int):
        return isinstance(value, int)
    if issubclass(kind, np.generic | float):
        return isinstance(value, int | float)
    return isinstance(value, kind)


def _is_array_of(array: np.ndarray[Any, Any], arguments: tuple[Any, ...]) -> bool:
    scalar = next(iter(get_args(arguments[1])), None) if len(arguments) > 1 else None
    return scalar is Any or not isinstance(scalar, type) or issubclass(array.dtype.type, scalar)


def _are_items(found: dict[Any, Any], key: Any, value: Any) -> bool:
    return all(fits(one, key) and fits(other, value) for one, other in found.items())


def _are_elements(found: tuple[Any, ...], kind: type, arguments: tuple[Any, ...]) -> bool:
    if kind is not tuple or arguments[1:] == (...,):
        return all(fits(one, arguments[0]) for one in found)
    return len(found) == len(arguments) and all(map(fits, found, arguments))
