"""State on disk and in digests: a tree of frozen dataclasses, arrays and numbers as bytes, without pickle.

State is declared, so it can be written: the arrays as safetensors, the tree around them as JSON in the same file. The
bytes are canonical: equal states have equal bytes. An array that occurs several times in a state is written once. Of a
client's spilled value only the name is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from sparsona.by_client import ByClient, Resting
from sparsona.errors import ContractError, RunError
from sparsona.tree import SCALARS

Array = np.ndarray[Any, Any]

OMIT_NONE = {"omit": None}
"""Metadata of a field that is written only if it is not None, so that older states keep their bytes."""


def pack(state: Any) -> bytes:
    """Return the bytes of a state.

    >>> unpack(pack({"weights": np.arange(3), "round": 4}), dict)
    {'round': 4, 'weights': array([0, 1, 2])}
    """
    return _packed(state, _Arrays())


def _packed(state: Any, arrays: _Arrays) -> bytes:
    tree = _plain(state, arrays, "state")
    return bytes(save_tensors(arrays.by_key, metadata={"tree": json.dumps(tree, separators=(",", ":"))}))


def unpack_like(data: bytes, fresh: Any) -> Any:
    """Return the state in `data`, of the types that `fresh` and its fields have.

    Use it for a dataclass whose annotations leave its content open.
    """
    inner = {f.name: type(getattr(fresh, f.name)) for f in dataclasses.fields(fresh)}
    state = unpack(data, type(fresh), *inner.values())
    for name, kind in inner.items():
        if dataclasses.is_dataclass(kind) and type(getattr(state, name)) is not kind:
            raise RunError(f"a state holds no {kind.__name__}: run it again into another --out")
    return state


Find: TypeAlias = Callable[[str], bytes]  # reads the bytes of a spilled value by its name


def _nowhere(name: str) -> bytes:
    raise RunError(f"a state names {name}, which is not in it: run it again into another --out")


def unpack(data: bytes, kind: type, *more: type, find: Find = _nowhere) -> Any:
    """Return the state in `data`; the annotations of `kind`, or `more`, name every dataclass that may occur.

    Arrays of equal content come back as one object. Spilled values are read by `find` on demand.
    """
    state = _read(data, _reachable(kind, *more), find)
    if not fits(state, kind):
        raise RunError(f"a state is a {type(state).__name__}, not a {kind.__name__}: run it again into another --out")
    return state


def _read(data: bytes, kinds: dict[str, type], find: Find) -> Any:
    try:
        size = int.from_bytes(data[:8], "little")
        tree = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["tree"])
        return _rebuild(tree, load_tensors(data), kinds, find)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"a state is damaged ({error!r}): run it again into another --out") from None


def digest(state: Any) -> str:
    """Return the sha256 of a state's bytes, with the sha256 of each client's value in its place: it may be spilled."""
    return hashlib.sha256(_packed(state, _Arrays(digests=True))).hexdigest()


class _Arrays:
    """The arrays of a state by key. Arrays of equal type, shape and bytes have one key.

    An array is hashed only if another one of its type and shape came before, and an object only once. With `digests`
    the clients' values are replaced by their hashes.
    """

    def __init__(self, digests: bool = False) -> None:
        self.digests = digests
        self.by_key: dict[str, Array] = {}
        self._objects: dict[int, tuple[Array, str]] = {}
        self._first: dict[tuple[str, tuple[int, ...]], str] = {}
        self._hashed: dict[tuple[str, tuple[int, ...]], dict[bytes, str]] = {}

    def key(self, array: Array) -> str:
        if id(array) not in self._objects:
            plain = np.ascontiguousarray(array).reshape(array.shape)
            self._objects[id(array)] = array, self._key(plain)
        return self._objects[id(array)][1]

    def _key(self, array: Array) -> str:
        kind = array.dtype.str, array.shape
        if kind not in self._first:
            self._first[kind] = self._add(array)
            return self._first[kind]
        if kind not in self._hashed:
            first = self._first[kind]
            self._hashed[kind] = {_hash(self.by_key[first]): first}
        same = self._hashed[kind]
        mark = _hash(array)
        if mark not in same:
            same[mark] = self._add(array)
        return same[mark]

    def _add(self, array: Array) -> str:
        key = str(len(self.by_key))
        self.by_key[key] = array
        return key


def _hash(array: Array) -> bytes:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()


def _plain(value: Any, arrays: _Arrays, path: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"array": arrays.key(value)}
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: _plain(getattr(value, f.name), arrays, f"{path}.{f.name}")
            for f in dataclasses.fields(value)
            if "omit" not in f.metadata or getattr(value, f.name) is not None
        }
        return {"class": type(value).__qualname__, "fields": fields}
    if isinstance(value, tuple | list):
        return [v if type(v) in SCALARS else _plain(v, arrays, f"{path}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, frozenset):
        return {"set": sorted(value)}
    if isinstance(value, ByClient):
        held = value.held
        return {"clients": [[k, _entry(held[k], arrays, path, k)] for k in value]}
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) for key in value):
            raise ContractError(f"{path} has a key that is neither text nor an integer")
        keys = sorted(value, key=lambda k: (isinstance(k, str), k))
        items = ((key, value[key]) for key in keys)
        return {"dict": [[k, v if type(v) in SCALARS else _plain(v, arrays, f"{path}[{k!r}]")] for k, v in items]}
    raise ContractError(
        f"{path} is a {type(value).__name__}: state may hold dataclasses, arrays, numbers, text, tuples and dicts"
    )


def _entry(value: Any, arrays: _Arrays, path: str, client: str) -> Any:
    """Return a client's value, or the name of a spilled one."""
    if isinstance(value, Resting):
        return {"rest": value.name}
    return {"rest": digest(value)} if arrays.digests else _plain(value, arrays, f"{path}[{client!r}]")


def _rebuild(tree: Any, arrays: dict[str, Any], kinds: dict[str, type], find: Find) -> Any:
    if isinstance(tree, list):
        return tuple(_rebuild(item, arrays, kinds, find) for item in tree)
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "set" in tree:
        return frozenset(tree["set"])
    if "rest" in tree:
        name = str(tree["rest"])
        return Resting(name, lambda: _read(find(name), kinds, find))
    if "clients" in tree:
        return ByClient({key: _rebuild(value, arrays, kinds, find) for key, value in tree["clients"]})
    if "dict" in tree:
        return {key: _rebuild(value, arrays, kinds, find) for key, value in tree["dict"]}
    if tree["class"] not in kinds:
        raise ContractError(f"state holds a {tree['class']} that its type annotations do not name")
    kind = kinds[tree["class"]]
    state = kind(**{k: _rebuild(v, arrays, kinds, find) for k, v in tree["fields"].items()})
    for name, hint in _hints(kind).items():
        if name in tree["fields"] and not fits(getattr(state, name), hint):
            raise TypeError(f"{kind.__name__}.{name} is a {type(getattr(state, name)).__name__}, not {hint}")
    return state


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _reachable(*kinds: Any) -> dict[str, type]:
    """Return every dataclass that the annotations of `kinds` lead to, by name."""
    found: dict[str, type] = {}

    def visit(hint: Any) -> None:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint.__qualname__ not in found:
            found[hint.__qualname__] = hint
            for inner in _hints(hint).values():
                visit(inner)
        for inner in get_args(hint):
            visit(inner)

    for kind in kinds:
        visit(kind)
    return found


def fits(value: Any, hint: Any) -> bool:
    """True if `value` is of the annotated type `hint`, as far as a stored state shows.

    >>> fits((1, 2), tuple[int, ...]), fits({"a": "b"}, dict[str, int]), fits(None, str | None), fits(1, Any)
    (True, False, True, True)

    >>> fits(np.zeros(2), np.ndarray[Any, np.dtype[Any]]), fits(3, Any)
    (True, True)

    Lists come back as tuples and numpy's numbers as Python's. An open annotation fits every value. Only the class of
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
        scalar = next(iter(get_args(arguments[1])), None) if len(arguments) > 1 else None
        of = scalar if isinstance(scalar, type) and scalar is not Any else np.generic
        return isinstance(value, np.ndarray) and issubclass(value.dtype.type, of)
    kind = origin if origin is not None else type(None) if hint is None else hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if issubclass(kind, str):
        return isinstance(value, str)
    if issubclass(kind, ByClient):
        return isinstance(value, ByClient)
    if issubclass(kind, Mapping):
        items = value.items() if isinstance(value, dict) and arguments else ()
        return isinstance(value, dict) and all(all(map(fits, item, arguments)) for item in items)
    if issubclass(kind, Sequence):
        return isinstance(value, tuple) and (not arguments or _are_elements(value, kind, arguments))
    if issubclass(kind, Set):
        return isinstance(value, frozenset)
    if issubclass(kind, int):
        return isinstance(value, int)
    if issubclass(kind, np.generic | float):
        return isinstance(value, int | float)
    return isinstance(value, kind)


def _are_elements(found: tuple[Any, ...], kind: type, arguments: tuple[Any, ...]) -> bool:
    if kind is not tuple or arguments[1:] == (...,):
        return all(fits(one, arguments[0]) for one in found)
    return len(found) == len(arguments) and all(map(fits, found, arguments))
