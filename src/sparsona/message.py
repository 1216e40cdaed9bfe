"""Messages between a client and the server, made of named parts.

A method chooses the kind of each part (a vector, a sparse vector, a set of positions, ...) and never sees bytes;
:mod:`sparsona.wire` turns a message into a frame and back, without loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError

Vector: TypeAlias = npt.NDArray[np.float32]
"""A model, an update, a gradient: one flat float32 array."""

Numbers: TypeAlias = npt.NDArray[Any]
"""A one-dimensional array of float32, float16, or integers."""

Mask: TypeAlias = npt.NDArray[np.bool_]
IndexSet: TypeAlias = npt.NDArray[np.int64]
"""Sorted, distinct positions."""


def _index_set(indices: npt.ArrayLike, size: int) -> IndexSet:
    given = np.asarray(indices)
    if given.size and given.dtype.kind not in "iu":
        raise WireError(f"positions must be integers, not {given.dtype}")
    out = np.ascontiguousarray(given, dtype=np.int64)
    if size < 0 or out.ndim != 1 or (len(out) and (out[0] < 0 or out[-1] >= size or (out[1:] <= out[:-1]).any())):
        raise WireError(f"positions must be sorted, distinct and within 0..{size - 1}")
    return out


class Valued:
    """A part whose float32 `values` are its numbers, of which papers count 32 bits each, and no positions."""

    values: Vector

    def numbers(self) -> tuple[Numbers, ...]:
        """Return the values."""
        return (self.values,)

    def paper_bytes(self) -> int:
        """Count 32 bits per value, and no positions."""
        return self.values.nbytes


@dataclass(frozen=True, eq=False)
class Positions:
    """A set of positions among `size`: a mask, or the changes of a mask.

    >>> Positions.of(np.array([True, False, True])).indices
    array([0, 2])
    """

    size: int
    indices: IndexSet

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", _index_set(self.indices, self.size))

    @classmethod
    def of(cls, mask: Mask) -> Positions:
        """Return the positions at which a mask is true."""
        return cls.of_sorted(len(mask), np.flatnonzero(mask))

    @classmethod
    def of_sorted(cls, size: int, indices: IndexSet) -> Positions:
        """Skip the checks: the caller knows that the positions are sorted, distinct and within `size`."""
        out = cls.__new__(cls)
        out.__dict__.update(size=size, indices=indices)
        return out

    def mask(self) -> Mask:
        """Return the positions as a mask."""
        out = np.zeros(self.size, np.bool_)
        out[self.indices] = True
        return out

    def numbers(self) -> tuple[Numbers, ...]:
        """Return no numbers: positions have none."""
        return ()

    def paper_bytes(self) -> int:
        """Count nothing, as papers do."""
        return 0


@dataclass(frozen=True, eq=False)
class Sparse(Valued):
    """A vector of length `size` with values on `indices` only; a value may be 0.

    >>> Sparse(4, np.array([1, 3]), np.array([5, 7], np.float32)).dense()
    array([0., 5., 0., 7.], dtype=float32)
    """

    size: int
    indices: IndexSet
    values: Vector

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", _index_set(self.indices, self.size))
        object.__setattr__(self, "values", np.ascontiguousarray(self.values, dtype=np.float32))
        if self.values.shape != self.indices.shape:
            raise WireError(f"{len(self.indices)} positions but {len(self.values)} values")

    @classmethod
    def of_sorted(cls, size: int, indices: IndexSet, values: Vector) -> Sparse:
        """Skip the checks: the caller knows that the positions are sorted, distinct and within `size`."""
        out = cls.__new__(cls)
        out.__dict__.update(size=size, indices=indices, values=values)
        return out

    @classmethod
    def take(cls, vector: Vector, indices: IndexSet) -> Sparse:
        """Return the entries of `vector` at `indices`."""
        return cls(len(vector), indices, vector[indices])

    def dense(self) -> Vector:
        """The whole vector, zero where nothing is given."""
        out = np.zeros(self.size, np.float32)
        out[self.indices] = self.values
        return out


@dataclass(frozen=True, eq=False)
class Blocks(Valued):
    """Some of `count` blocks whose bounds both sides know, with the kept blocks' values concatenated."""

    count: int
    kept: IndexSet
    values: Vector

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", _index_set(self.kept, self.count))
        object.__setattr__(self, "values", np.ascontiguousarray(self.values, dtype=np.float32))


@dataclass(frozen=True, eq=False)
class Ternary:
    """A sparse vector whose entries are plus or minus one magnitude per tensor; `sizes` are the tensors' lengths."""

    sizes: tuple[int, ...]
    indices: IndexSet
    negative: Mask
    magnitudes: Vector

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(int(n) for n in self.sizes))
        object.__setattr__(self, "indices", _index_set(self.indices, sum(self.sizes)))
        object.__setattr__(self, "negative", np.ascontiguousarray(self.negative, dtype=np.bool_))
        object.__setattr__(self, "magnitudes", np.ascontiguousarray(self.magnitudes, dtype=np.float32))
        if self.negative.shape != self.indices.shape or self.magnitudes.shape != (len(self.sizes),):
            raise WireError("a ternary part needs a sign for every position and a magnitude for every tensor")

    def dense(self) -> Vector:
        """The whole vector, zero where nothing is given."""
        out = np.zeros(sum(self.sizes), np.float32)
        tensor = np.searchsorted(np.cumsum(self.sizes), self.indices, side="right")
        out[self.indices] = np.where(self.negative, -self.magnitudes[tensor], self.magnitudes[tensor])
        return out

    def numbers(self) -> tuple[Numbers, ...]:
        """Return the magnitudes."""
        return (self.magnitudes,)

    def paper_bytes(self) -> int:
        """Count one bit per sign and 32 bits per magnitude, and no positions."""
        return (len(self.indices) + 7) // 8 + self.magnitudes.nbytes


@dataclass(frozen=True, eq=False)
class Levels(Valued):
    """A vector with few different values in long runs; `sizes` are the lengths of its tensors."""

    sizes: tuple[int, ...]
    values: Vector

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(int(n) for n in self.sizes))
        object.__setattr__(self, "values", np.ascontiguousarray(self.values, dtype=np.float32))
        if self.values.shape != (sum(self.sizes),):
            raise WireError(f"the tensors hold {sum(self.sizes)} entries but {len(self.values)} are given")


Structured: TypeAlias = Sparse | Positions | Blocks | Ternary | Levels
"""The kinds of parts that are classes; only :mod:`sparsona.wire.kinds` lists them, too."""

Part: TypeAlias = Numbers | Structured | int | float

NUMBER_TYPES = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64")
_NATIVE = frozenset(map(np.dtype, NUMBER_TYPES))


@dataclass(frozen=True)
class Stamp:
    """The loop's stamp on every message: its order, or the order that it answers.

    `phase` counts the phases of a round. `acked` is the order (round, phase) whose reply is the last one of this client
    that the server has; None if it has none.
    """

    round: int = 0
    phase: int = 0
    acked: tuple[int, int] | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Return the order, round and phase, of the message or of its answer."""
        return self.round, self.phase


class Message:
    """Named parts, read by name and kind.

    >>> m = Message(weights=np.zeros(3, np.float32), examples=20)
    >>> m.vector("weights"), m.integer("examples")
    (array([0., 0., 0.], dtype=float32), 20)
    """

    __slots__ = ("parts", "stamp")

    def __init__(self, /, **parts: Part) -> None:
        self.parts: Mapping[str, Part] = {name: _clean(name, part) for name, part in parts.items()}
        self.stamp = Stamp()

    @classmethod
    def of(cls, parts: Mapping[str, Part], stamp: Stamp) -> Message:
        """Return a message with parts of another message, under a stamp of its own."""
        out = cls()
        out.parts, out.stamp = parts, stamp
        return out

    def stamped(self, stamp: Stamp) -> Message:
        """Return the same parts under another stamp."""
        return Message.of(self.parts, stamp)

    @property
    def round(self) -> int:
        """Return the message's round, from 0."""
        return self.stamp.round

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={part!r}' for name, part in self.parts.items())})"

    def _get(self, name: str, kind: type | tuple[type, ...], called: str) -> Any:
        part = self.parts.get(name)
        if not isinstance(part, kind):
            held = f"a {type(part).__name__}" if name in self.parts else "nothing"
            raise WireError(f"the message holds {held} under {name!r}, expected {called}")
        return part

    def vector(self, name: str, size: int | None = None) -> Vector:
        """Return the float32 vector called `name`, of length `size` if given."""
        part: Vector = self._get(name, np.ndarray, "a vector")
        if part.dtype != np.float32 or (size is not None and len(part) != size):
            wanted = "any length" if size is None else f"length {size}"
            raise WireError(f"{name!r} is {part.dtype} of length {len(part)}, expected float32 of {wanted}")
        return part

    def numbers(self, name: str) -> Numbers:
        """Return the array called `name`, of any type."""
        part: Numbers = self._get(name, np.ndarray, "an array")
        return part

    def sparse(self, name: str, size: int | None = None) -> Sparse:
        """Return the sparse vector called `name`, of length `size` if given."""
        part: Sparse = self._get(name, Sparse, "a sparse vector")
        if size is not None and part.size != size:
            raise WireError(f"{name!r} is a sparse vector of length {part.size}, expected {size}")
        return part

    def positions(self, name: str, size: int | None = None) -> Positions:
        """Return the positions called `name`, among `size` if given."""
        part: Positions = self._get(name, Positions, "positions")
        if size is not None and part.size != size:
            raise WireError(f"{name!r} are positions among {part.size}, expected {size}")
        return part

    def blocks(self, name: str) -> Blocks:
        """Return the blocks called `name`."""
        part: Blocks = self._get(name, Blocks, "blocks")
        return part

    def ternary(self, name: str) -> Ternary:
        """Return the ternary vector called `name`."""
        part: Ternary = self._get(name, Ternary, "a ternary vector")
        return part

    def levels(self, name: str, size: int | None = None) -> Levels:
        """Return the levels called `name`, of length `size` if given."""
        part: Levels = self._get(name, Levels, "levels")
        if size is not None and len(part.values) != size:
            raise WireError(f"{name!r} has {len(part.values)} entries, expected {size}")
        return part

    def integer(self, name: str) -> int:
        """Return the whole number called `name`."""
        part: int = self._get(name, int, "an integer")
        return part

    def real(self, name: str) -> float:
        """Return the number called `name`."""
        return float(self._get(name, (int, float), "a number"))

    def examples(self) -> int:
        """Return the number of examples of this reply; refuse a number below 1."""
        count = self.integer("examples")
        if count <= 0:
            raise WireError(f"a reply claims {count} examples, expected at least one")
        return count


def _clean(name: str, part: Part) -> Part:
    if isinstance(part, np.ndarray):
        if part.ndim != 1 or (part.dtype not in _NATIVE and part.dtype.name not in NUMBER_TYPES):
            raise WireError(
                f"part {name!r} is {part.dtype} of {part.ndim} dimensions; "
                f"what travels has one dimension and is one of {', '.join(NUMBER_TYPES)}"
            )
        ready = part.flags.c_contiguous and part.dtype.isnative
        return part if ready else np.ascontiguousarray(part, part.dtype.newbyteorder("="))
    if isinstance(part, int | np.integer | np.bool_):
        return int(part)
    if isinstance(part, float | np.floating):
        return float(part)
    if not isinstance(part, Structured):
        raise WireError(f"part {name!r} is a {type(part).__name__}, which cannot travel")
    return part


def numbers_of(part: Part) -> tuple[Numbers, ...]:
    """Return all values of a part, without positions and counts.

    >>> [array.tolist() for array in numbers_of(Sparse(9, np.array([1, 4]), np.array([0.5, -2], np.float32)))]
    [[0.5, -2.0]]
    """
    if isinstance(part, np.ndarray):
        return (part,)
    if isinstance(part, float):
        return (np.array([part]),)
    return () if isinstance(part, int) else part.numbers()


def paper_bytes(message: Message) -> int:
    """Count bytes as papers do: 32 bits per value (or its width), no positions, masks or scalars.

    >>> paper_bytes(Message(update=Sparse(9, np.array([1, 4]), np.zeros(2, np.float32)), examples=7))
    8
    """
    parts = message.parts.values()
    arrays = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
    return arrays + sum(part.paper_bytes() for part in parts if isinstance(part, Structured))
