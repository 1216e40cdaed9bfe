"""The coders that the papers name: Golomb-Rice gaps (Sattler's STC, FedPSE) and Elias gamma (QSGD, pFedNet).

Frames do not use the first, since the range coder is never longer; it is here so that the papers' figures
can be reproduced, bit for bit. Bits are written first to last into bytes, the highest bit of a byte first,
as the papers print them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.errors import WireError
from sparsona.message import IndexSet
from sparsona.wire.buffers import Bytes

Naturals = npt.NDArray[np.int64]


def rice_parameter(size: int, count: int) -> int:
    """How many low bits of a gap are written plainly: max(0, 1 + floor(log2(ln(phi - 1) / ln(1 - p)))), p = count/size.

    >>> rice_parameter(1000, 100), rice_parameter(1000, 10), rice_parameter(400, 1)
    (3, 6, 8)
    """
    if count <= 0 or count >= size:
        return 0
    golden = (math.sqrt(5) + 1) / 2
    return max(0, 1 + math.floor(math.log2(math.log(golden - 1) / math.log1p(-count / size))))


def rice_expected_bits(density: float, low: int) -> float:
    """The expected bits a position at a density, `low` bits being plain.

    >>> [round(rice_expected_bits(p, b), 3) for p, b in ((0.1, 3), (0.01, 6), (1 / 400, 8))]
    [4.756, 8.108, 10.114]
    """
    return low + 1 / (1 - (1 - density) ** (1 << low))


def _gaps(indices: IndexSet) -> Naturals:
    return np.diff(indices, prepend=-1)


def rice_bits(indices: IndexSet, size: int) -> int:
    """Exactly how many bits :func:`rice_encode` writes: q + 1 + b a gap, q the gap less one shifted right by b.

    >>> rice_bits(np.array([3, 50]), 100)  # b = 5: gaps 4 and 47, quotients 0 and 1
    13
    """
    low = rice_parameter(size, len(indices))
    return int(((_gaps(indices) - 1) >> low).sum()) + len(indices) * (1 + low)


def rice_encode(indices: IndexSet, size: int) -> bytes:
    """Each gap as its quotient in ones, a zero, and the low bits, highest first."""
    low = rice_parameter(size, len(indices))
    return _pack(_write_rice(_gaps(indices) - 1, low, rice_bits(indices, size)))


def rice_decode(data: bytes, size: int, count: int) -> IndexSet:
    """The `count` positions out of `size` that :func:`rice_encode` wrote."""
    gaps, fine = _read_rice(_unpack(data), rice_parameter(size, count), count, size)
    indices: IndexSet = np.cumsum(gaps + 1) - 1
    if not fine or (count and indices[-1] >= size):
        raise WireError("a Golomb-Rice code does not fit its positions")
    return indices


def gamma_bits(numbers: npt.ArrayLike) -> int:
    """Exactly how many bits Elias gamma takes: 2 floor(log2 n) + 1 for each n >= 1.

    >>> [gamma_bits([n]) for n in (1, 2, 3, 4, 7, 8, 100)]
    [1, 3, 3, 5, 5, 7, 13]
    """
    naturals = np.asarray(numbers, np.int64)
    if (naturals < 1).any():
        raise WireError("Elias gamma codes numbers from 1 on")
    return _count_gamma(naturals)


def gamma_encode(numbers: Iterable[int] | Naturals) -> bytes:
    """floor(log2 n) zeros, then n in binary, for each n >= 1.

    >>> gamma_encode([1, 2, 3]).hex()  # 1 010 011 and a zero to fill
    'a6'
    """
    naturals = np.array(list(numbers) if not isinstance(numbers, np.ndarray) else numbers, np.int64)
    return _pack(_write_gamma(naturals, gamma_bits(naturals)))


def gamma_decode(data: bytes, count: int) -> Naturals:
    numbers, end = read_gamma(_unpack(data), 0, count)
    if end < 0:
        raise WireError("an Elias gamma code ends too early")
    return numbers


def _pack(bits: Bytes) -> bytes:
    return np.packbits(bits).tobytes()


def _unpack(data: bytes) -> Bytes:
    return np.unpackbits(np.frombuffer(data, np.uint8))


@compiled
def _write_rice(gaps: Naturals, low: int, total: int) -> Bytes:
    out = np.zeros(total, np.uint8)
    at = 0
    for gap in gaps:
        for _ in range(gap >> low):
            out[at] = 1
            at += 1
        at += 1
        for bit in range(low - 1, -1, -1):
            out[at] = (gap >> bit) & 1
            at += 1
    return out


@compiled
def _read_rice(bits: Bytes, low: int, count: int, size: int) -> tuple[Naturals, bool]:
    out = np.zeros(count, np.int64)
    at = 0
    for i in range(count):
        gap = np.int64(0)
        while at < len(bits) and bits[at] and gap <= size:
            gap += 1
            at += 1
        at += 1
        if at + low > len(bits) or gap > size:
            return out, False
        for _ in range(low):
            gap = gap << 1 | bits[at]
            at += 1
        out[i] = gap
    return out, True


@compiled
def _log2(number: int) -> int:
    log = 0
    while number >> (log + 1):
        log += 1
    return log


@compiled
def _count_gamma(numbers: Naturals) -> int:
    total = 0
    for number in numbers:
        total += 2 * _log2(number) + 1
    return total


@compiled
def _write_gamma(numbers: Naturals, total: int) -> Bytes:
    out = np.zeros(total, np.uint8)
    at = 0
    for number in numbers:
        log = _log2(number)
        at += log
        for bit in range(log, -1, -1):
            out[at] = (number >> bit) & 1
            at += 1
    return out


@compiled
def read_gamma(bits: Bytes, at: int, count: int) -> tuple[Naturals, int]:
    """`count` numbers from bit `at` on, and the bit after them; -1 if the bits run out or a number exceeds 62
    bits.
    """
    out = np.zeros(count, np.int64)
    for i in range(count):
        log = 0
        while at < len(bits) and bits[at] == 0:
            log += 1
            at += 1
        if log > 61 or at + log >= len(bits):
            return out, -1
        for _ in range(log + 1):
            out[i] = out[i] << 1 | bits[at]
            at += 1
    return out, at
