"""State on disk and in digests: a tree of frozen dataclasses, arrays and numbers as bytes, without pickle.

What a client or the server remembers is declared, so it can be written down: the arrays as safetensors, the tree
around them as JSON in the same file. The bytes are canonical: equal states have equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, get_args, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from sparsona.errors import ContractError, RunError


def pack(state: Any) -> bytes:
    """The bytes of a state.

    >>> unpack(pack({"weights": np.arange(3), "round": 4}), dict)
    {'round': 4, 'weights': array([0, 1, 2])}
    """
    arrays: dict[str, Any] = {}
    tree = _plain(state, arrays, "state")
    return bytes(save_tensors(arrays, metadata={"tree": json.dumps(tree, separators=(",", ":"))}))


def kinds_of(state: Any) -> Any:
    """The types that a state of the same kind may hold: its own, and those of its fields' values."""
    kind: Any = type(state)
    if dataclasses.is_dataclass(state):
        for entry in dataclasses.fields(state):
            kind = kind | type(getattr(state, entry.name))
    return kind


def unpack(data: bytes, kind: Any) -> Any:
    """The state behind `data`; `kind` is its type, whose annotations name every dataclass that may occur."""
    try:
        size = int.from_bytes(data[:8], "little")
        tree = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["tree"])
        arrays = load_tensors(data)
        return _rebuild(tree, arrays, _reachable(kind))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"a state is damaged ({error!r}): run it again into another --out") from None


def digest(state: Any) -> str:
    return hashlib.sha256(pack(state)).hexdigest()


def _plain(value: Any, arrays: dict[str, Any], path: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        key = str(len(arrays))
        arrays[key] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array": key}
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name), arrays, f"{path}.{f.name}") for f in dataclasses.fields(value)}
        return {"class": type(value).__qualname__, "fields": fields}
    if isinstance(value, tuple | list):
        return [_plain(item, arrays, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, frozenset):
        return {"set": sorted(value)}
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) for key in value):
            raise ContractError(f"{path} has a key that is neither text nor an integer")
        keys = sorted(value, key=lambda k: (isinstance(k, str), k))
        return {"dict": [[key, _plain(value[key], arrays, f"{path}[{key!r}]")] for key in keys]}
    raise ContractError(
        f"{path} is a {type(value).__name__}: state may hold dataclasses, arrays, numbers, text, tuples and dicts"
    )


def _rebuild(tree: Any, arrays: dict[str, Any], kinds: dict[str, type]) -> Any:
    if isinstance(tree, list):
        return tuple(_rebuild(item, arrays, kinds) for item in tree)
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "set" in tree:
        return frozenset(tree["set"])
    if "dict" in tree:
        return {key: _rebuild(value, arrays, kinds) for key, value in tree["dict"]}
    if tree["class"] not in kinds:
        raise ContractError(f"state holds a {tree['class']} that its type annotations do not name")
    return kinds[tree["class"]](**{k: _rebuild(v, arrays, kinds) for k, v in tree["fields"].items()})


def _reachable(kind: Any) -> dict[str, type]:
    """Every dataclass that the annotations of `kind` lead to, by name."""
    found: dict[str, type] = {}

    def visit(hint: Any) -> None:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint.__qualname__ not in found:
            found[hint.__qualname__] = hint
            for inner in get_type_hints(hint).values():
                visit(inner)
        for inner in get_args(hint):
            visit(inner)

    visit(kind)
    return found
