"""Read bytes within bounds, write numbers of variable length, and note the use of each piece of a frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError


@dataclass(frozen=True)
class Ledger:
    """Bytes by kind. They add up to the length of the frame, so sums over frames are sums of what travelled.

    `bound` is the entropy bound of the positions, in bytes: the average length of the best coder that knows only the
    number of positions (in the vector, or in each tensor, whichever is smaller).

    `against` counts the bytes of parts that were coded against a reference, and `against_plain` the bytes that
    these parts take in plain packing: 4 bytes per float32, a bitmap or a list of positions.

    >>> (Ledger(header=20, values=400) + Ledger(header=20, positions=59, bound=58.6)).total
    499
    """

    header: int = 0
    positions: int = 0
    values: int = 0
    bound: float = 0.0
    against: int = 0
    against_plain: int = 0

    @property
    def total(self) -> int:
        """Return the length of the frames."""
        return self.header + self.positions + self.values

    @classmethod
    def sum(cls, ledgers: Iterable[Ledger], header: int = 0) -> Ledger:
        """Return the sum of many ledgers plus `header` bytes of header: faster than one by one.

        >>> Ledger.sum([Ledger(header=1), Ledger(values=4), Ledger(header=2)])
        Ledger(header=3, positions=0, values=4, bound=0.0, against=0, against_plain=0)
        """
        positions = values = against = against_plain = 0
        bound = 0.0
        for one in ledgers:
            header += one.header
            positions += one.positions
            values += one.values
            bound += one.bound
            against += one.against
            against_plain += one.against_plain
        return cls(header, positions, values, bound, against, against_plain)

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger.sum((self, other)) if other.total else self


Bytes = npt.NDArray[np.uint8]


_ONE_BYTE = [bytes([number]) for number in range(128)]


def varint(number: int) -> bytes:
    """Return `number` >= 0 in groups of seven bits, the lowest first; the top bit of a byte says that more follow.

    >>> varint(5).hex(), varint(300).hex()
    ('05', 'ac02')
    """
    if number < 128:
        return _ONE_BYTE[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> int:
    """Fold a number so that small ones of either sign are small: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number * 2 if number >= 0 else -number * 2 - 1


def unzigzag(code: int) -> int:
    """Return the signed number behind a folded one."""
    return code // 2 if code % 2 == 0 else -(code // 2) - 1


@dataclass(frozen=True)
class Piece:
    """Bytes of a frame in chunks, which are joined only once, and the use of these bytes."""

    chunks: tuple[bytes | memoryview, ...]
    ledger: Ledger

    @classmethod
    def header(cls, data: bytes) -> Piece:
        """Return bytes that are neither positions nor values."""
        return cls((data,), Ledger(header=len(data)))

    @classmethod
    def positions(cls, data: bytes, bound: float) -> Piece:
        """Return bytes of positions; `bound` is their entropy bound."""
        return cls((data,), Ledger(positions=len(data), bound=bound))

    @classmethod
    def values(cls, *data: bytes | memoryview) -> Piece:
        """Return bytes of values."""
        return cls(data, Ledger(values=sum(map(len, data))))

    @classmethod
    def join(cls, pieces: Iterable[Piece]) -> Piece:
        """Return several pieces, one after the other."""
        several = tuple(pieces)
        return cls(tuple(c for p in several for c in p.chunks), Ledger.sum(p.ledger for p in several))

    @property
    def data(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.chunks)


class Reader:
    """Read forward, never past the end, and keep account of the numbers that may still be held.

    Code that asks for memory in proportion to a number that was read calls :meth:`claim` first.
    """

    __slots__ = ("_at", "_data", "_left")

    def __init__(self, data: bytes | memoryview, elements: int) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._left = elements

    @property
    def remaining(self) -> int:
        """Return the number of bytes that are left."""
        return len(self._data) - self._at

    def claim(self, elements: int, what: str) -> None:
        """Subtract `elements` from the numbers that may be held."""
        if elements > self._left:
            raise WireError(f"{elements} numbers in {what} are too many, only {self._left} more are allowed")
        self._left -= elements

    def take(self, count: int, what: str) -> memoryview:
        """Return the next `count` bytes; `what` names them in an error."""
        if count > self.remaining:
            raise WireError(f"the frame ends in {what}: {count} bytes expected, {self.remaining} left")
        out = self._data[self._at : self._at + count]
        self._at += count
        return out

    def ahead(self, most: int) -> Bytes:
        """Return up to `most` of the next bytes without taking them."""
        return np.frombuffer(self._data[self._at : self._at + most], np.uint8).copy()

    def byte(self, what: str) -> int:
        """Return the next byte; `what` names it in an error."""
        return self.take(1, what)[0]

    def varint(self, what: str, most: int = 2**64 - 1) -> int:
        """Return the next varint, at most `most`; `what` names it in an error."""
        number = 0
        for shift in range(0, 70, 7):
            if self._at == len(self._data):
                raise WireError(f"the frame ends in {what}: 1 bytes expected, 0 left")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and shift:
                    raise WireError(f"{what} is written with needless bytes")
                if number > most:
                    raise WireError(f"{what} is {number}, at most {most} is possible")
                return number
        raise WireError(f"{what} does not end")

    def array(self, dtype: str, count: int, what: str) -> npt.NDArray[Any]:
        """Return a view of the next `count` numbers of little-endian type `dtype`."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(count * kind.itemsize, what), kind)
