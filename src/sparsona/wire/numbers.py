"""Code vectors of numbers: float32 by :mod:`sparsona.wire.floats`, the others as planes of bytes.

An integer is first folded so that small numbers of either sign are small (0, -1, 1, -2 become 0, 1, 2, 3).
Then the highest bytes of all numbers form a plane, the next ones another, and so on. Planes above the largest
number are left out; a plane is entropy-coded where that is smaller. A float16 has two planes. The upper one is
sign, exponent and two mantissa bits.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.message import Numbers
from sparsona.wire import floats, symbols
from sparsona.wire.buffers import Bytes, Reader

Unsigned = npt.NDArray[np.unsignedinteger[Any]]

RAW, CODED = 0, 1
_LEVELS = np.arange(256, dtype=np.uint8)
_FEW = 32


Chunks: TypeAlias = tuple[bytes | memoryview, ...]  # bytes in pieces that follow each other


def plain(values: Numbers) -> Chunks:
    """Return the numbers as they are, without leading bytes that none of them needs. A long vector is not copied."""
    if values.dtype == np.float32:
        return bytes([floats.RAW]), np.ascontiguousarray(values, "<f4").view(np.uint8).data
    return (_encode(values, _raw_plane),)


def tight(values: Numbers) -> Chunks:
    """Return the numbers in the fewest bytes that this coder can reach."""
    return (encode(values),)


def encode(values: Numbers) -> bytes:
    """Return numbers of any type as bytes."""
    return floats.encode(values) if values.dtype == np.float32 else _encode(values, _encode_plane)


def _encode(values: Numbers, plane: Callable[[Bytes], bytes]) -> bytes:
    folded = _fold(values)
    width = folded.itemsize
    if values.dtype.kind in "iu":
        largest = int(folded.max(initial=0))
        width = (largest.bit_length() + 7) // 8
    planes = folded.astype(folded.dtype.newbyteorder("<"), copy=False).view(np.uint8).reshape(-1, folded.itemsize)
    return bytes([width]) + b"".join(plane(planes[:, i]) for i in range(width))


def decode(reader: Reader, name: str, count: int) -> Numbers:
    """Return the next `count` numbers of the type called `name`. The caller has claimed them."""
    if name == "float32":
        return floats.decode(reader, count)
    dtype = np.dtype(name)
    width = reader.byte("the width of numbers")
    if width > dtype.itemsize or (dtype.kind == "f" and width != dtype.itemsize):
        raise WireError(f"numbers of type {name} cannot have {width} bytes")
    planes = np.zeros((count, dtype.itemsize), np.uint8)
    for i in range(width):
        planes[:, i] = _decode_plane(reader, count)
    unsigned = planes.reshape(-1).view(f"<u{dtype.itemsize}").astype(f"u{dtype.itemsize}", copy=False)
    return _unfold(unsigned, dtype)


def _fold(values: Numbers) -> Unsigned:
    unsigned = np.dtype(f"u{values.itemsize}")
    if values.dtype.kind != "i":
        return values.view(unsigned)
    bits = values.itemsize * 8
    folded: Unsigned = (values.view(unsigned) << 1) ^ (values >> (bits - 1)).view(unsigned)
    return folded


def _unfold(folded: Unsigned, dtype: np.dtype[Any]) -> Numbers:
    if dtype.kind != "i":
        return folded.view(dtype)
    one = folded.dtype.type(1)
    values: Numbers = ((folded >> one) ^ (~(folded & one) + one)).view(dtype)
    return values


def _encode_plane(plane: Bytes) -> bytes:
    if len(plane) >= _FEW:
        body = symbols.encode(plane.astype(np.uint16), _LEVELS, len(plane))
        if body is not None:
            return bytes([CODED]) + body
    return _raw_plane(plane)


def _raw_plane(plane: Bytes) -> bytes:
    return bytes([RAW]) + plane.tobytes()


def _decode_plane(reader: Reader, count: int) -> Bytes:
    way = reader.byte("the coding of a plane")
    if way == RAW:
        return reader.array("u1", count, "a plane of bytes")
    if way == CODED:
        return symbols.decode(reader, count, _LEVELS, "a plane of bytes").astype(np.uint8)
    raise WireError(f"a plane is coded in way {way}, which does not exist")
