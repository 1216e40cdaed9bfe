"""References: parts that sender and receiver both hold, against which a frame may be coded.

A frame names its reference by the fingerprint of its content. Other content has another fingerprint, so a frame is
never decoded against the wrong parts: it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
import xxhash

from sparsona.message import Part

FINGERPRINT = 8  # bytes of a fingerprint


@dataclass(frozen=True, eq=False)
class Reference:
    """Parts that both sides hold, named by their content. Their arrays must not be written to.

    >>> parts = {"weights": np.zeros(3, np.float32)}
    >>> Reference.of(parts).fingerprint.hex()
    '5a010914e08d5aa0'
    >>> Reference.of(parts).fingerprint == Reference.of({"weights": np.ones(3, np.float32)}).fingerprint
    False
    """

    parts: Mapping[str, Part]
    fingerprint: bytes

    @classmethod
    def of(cls, parts: Mapping[str, Part]) -> Reference:
        """Return `parts` under their fingerprint, which takes a pass over all their bytes."""
        return cls(parts, fingerprint(parts))


def fingerprint(parts: Mapping[str, Part]) -> bytes:
    """Return the first eight bytes of the SHA-256 of all names, kinds, lengths and bits, in the order of the names.

    A text or an array counts as its length (8 bytes, little-endian) and its bytes; a number as the text that Python
    writes for it; a part as its name, its type and its fields, each under its own name.
    """
    out = hashlib.sha256()

    def add(data: Any) -> None:
        size = data.nbytes if isinstance(data, np.ndarray) else len(data)
        out.update(size.to_bytes(8, "little"))
        out.update(data)

    for name in sorted(parts):
        add(name.encode("utf-8", "surrogatepass"))
        for field, held in made_of(parts[name]).items():
            kind = held.dtype.name if isinstance(held, np.ndarray) else type(held).__name__
            add(f"{type(parts[name]).__name__}.{field}:{kind}".encode())
            if isinstance(held, np.ndarray):
                little = held.dtype.newbyteorder("<")
                add(np.ascontiguousarray(held, little))
            else:
                add(repr(held).encode())
    return out.digest()[:FINGERPRINT]


def made_of(part: Part) -> dict[str, Any]:
    """Return the arrays and numbers of a part, by name; a part that is an array or a number is its own only one."""
    kind: type = type(part)
    names = _names(kind)
    return {name: getattr(part, name) for name in names} if names else {"": part}


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a kind of part."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def content(part: Part | None) -> tuple[Any, ...]:
    """Return a key that differs between any two different parts: kind, numbers, and digests of arrays."""
    held = made_of(part).values() if part is not None else ()
    return type(part), *((x.dtype, xxhash.xxh3_128_digest(x.data)) if isinstance(x, np.ndarray) else x for x in held)


def same(one: Part, other: Part) -> bool:
    """Return whether two parts are equal, bit for bit. Most unequal parts already differ in a small sample."""
    if type(one) is not type(other):
        return False
    for a, b in zip(made_of(one).values(), made_of(other).values(), strict=True):
        if a is b:
            continue
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
            if a != b:
                return False
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        bits = f"u{a.itemsize}"
        x, y, step = a.view(bits), b.view(bits), max(1, len(a) // 64)
        if not (np.array_equal(x[::step], y[::step]) and np.array_equal(x, y)):
            return False
    return True


def same_objects(some: Mapping[str, Part], others: Mapping[str, Part]) -> bool:
    """Return whether two messages hold the same objects under the same names."""
    return some.keys() == others.keys() and all(some[name] is others[name] for name in some)
