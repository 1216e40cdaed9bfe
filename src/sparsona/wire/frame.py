"""Frames: a whole message as bytes, sealed with a checksum.

    magic        2 bytes   b7 53
    version      1 byte    1
    stamp        varints   round, phase, acked + 1
    parts        varint    how many
    each part    1 byte    its kind
                 1 byte    the length of its name
                 ...       its name in UTF-8
                 ...       its body, see docs/wire.md
    checksum     4 bytes   CRC-32 of all before it, little-endian

A damaged frame fails the checksum. A hostile one has a right checksum, so nothing that is read is trusted:
every number is checked before it is used, and :class:`Limit` bounds the memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce

import numpy as np

from sparsona.errors import WireError
from sparsona.message import Message, Part, Stamp
from sparsona.wire import parts
from sparsona.wire.buffers import Piece, Reader, varint
from sparsona.wire.ledger import Ledger
from sparsona.wire.parts import PackingName, Tensors

MAGIC = b"\xb7S"
VERSION = 1
_STAMP_MOST = 2**62


@dataclass(frozen=True)
class Limit:
    """What a receiver is ready to hold; checked before anything is allocated.

    `elements` is the most numbers that all parts of one message may hold once decoded. A sparse part, a mask
    and a ternary part count with their full length, since their reader will unfold them.
    """

    elements: int
    parts: int = 64

    @property
    def bytes(self) -> int:
        """No frame of so many numbers is longer."""
        return 16 * self.elements + 1024 * (self.parts + 1)


@dataclass(frozen=True)
class Frame:
    """An encoded message, and where its bytes went. A message without parts is never sent: `data` is empty."""

    data: bytes
    ledger: Ledger


class EncodeCache:
    """Bodies that were encoded before: what goes to many clients alike is encoded once, and a few are remembered.

    An array must not change while a memo that has seen it is in use. Make a new one for every turn.
    """

    KEPT = 8

    def __init__(self) -> None:
        self._kept: list[_Known] = []

    def encode(self, part: Part, layout: Tensors | None, packing: PackingName) -> tuple[int, Piece]:
        """The same as :func:`sparsona.wire.parts.encode`, remembered."""
        if isinstance(part, int | float):
            return parts.encode(part, layout, packing)
        means = layout, packing
        found = next((known for known in self._kept if known.means == means and _same(known.part, part)), None)
        entry = found or _Known(part, means, *parts.encode(part, layout, packing))
        self._kept = [entry, *(known for known in self._kept if known is not found)][: self.KEPT]
        return entry.kind, entry.body


@dataclass(frozen=True)
class _Known:
    part: Part
    means: tuple[Tensors | None, PackingName]
    kind: int
    body: Piece


class DecodeCache:
    """The parts that were decoded last: what came to many clients alike is decoded once. Nobody can write to them."""

    def __init__(self) -> None:
        self._body: bytes | None = None
        self._parts: Mapping[str, Part] = {}

    def get(self, body: bytes) -> Mapping[str, Part] | None:
        return self._parts if body == self._body else None

    def put(self, body: bytes, parts: Mapping[str, Part]) -> None:
        for part in parts.values():
            for held in _held(part):
                if isinstance(held, np.ndarray):
                    held.flags.writeable = False
        self._body, self._parts = body, parts


def _held(part: Part) -> list[object]:
    """What a part is made of: arrays and numbers."""
    return [getattr(part, field.name) for field in fields(part)] if is_dataclass(part) else [part]


def _same(one: Part, other: Part) -> bool:
    """Whether two parts hold the same, bit for bit. Most that differ do so in a small sample."""
    if type(one) is not type(other):
        return False
    for a, b in zip(_held(one), _held(other), strict=True):
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


def encode(
    message: Message, layout: Tensors | None = None, memo: EncodeCache | None = None, packing: PackingName = "tight"
) -> Frame:
    """The frame of `message`.

    `layout` holds the lengths of the model's tensors; if given, the receiver must give the same to
    :func:`decode`.

    >>> frame = encode(Message(examples=20))
    >>> frame.data.hex(), frame.ledger.total
    ('b753010000000100086578616d706c657328eccb5f63', 22)
    """
    stamp = message.stamp
    stamps = (*stamp.order, *((0,) if stamp.acked is None else (stamp.acked[0] + 1, stamp.acked[1])))
    if not all(0 <= n <= _STAMP_MOST for n in stamps):
        raise WireError(f"{stamp} cannot travel: rounds and phases count from 0")
    start = MAGIC + bytes([VERSION]) + b"".join(varint(n) for n in (*stamps, len(message)))
    pieces = [Piece.header(start)]
    for name, part in message.parts.items():
        kind, body = (parts if memo is None else memo).encode(part, layout, packing)
        pieces += [Piece.header(bytes([kind]) + _encode_name(name)), body]
    crc = reduce(lambda crc, chunk: zlib.crc32(chunk, crc), Piece.join(pieces).chunks, 0)
    whole = Piece.join([*pieces, Piece.header(crc.to_bytes(4, "little"))])
    return Frame(whole.data, whole.ledger)


def decode(data: bytes, limit: Limit, layout: Tensors | None = None, seen: DecodeCache | None = None) -> Message:
    """The message in the frame `data`; a :class:`~sparsona.errors.WireError` if it is not one, or exceeds `limit`.

    `seen` is for a receiver that gets the same parts again and again, always under the same limit and layout.

    >>> decode(encode(Message(examples=20)).data, Limit(elements=100)).examples()
    20
    """
    if data[:2] != MAGIC:
        raise WireError("these bytes are not a frame: they do not start as one")
    if len(data) < 11:
        raise WireError(f"the frame is truncated to {len(data)} bytes")
    if data[2] != VERSION:
        raise WireError(f"the frame is of version {data[2]}, this program reads version {VERSION}")
    if len(data) > limit.bytes:
        raise WireError(f"the frame has {len(data)} bytes, at most {limit.bytes} can be needed here")
    if zlib.crc32(memoryview(data)[:-4]) != int.from_bytes(data[-4:], "little"):
        raise WireError("the frame is damaged: its checksum does not fit")
    reader = Reader(memoryview(data)[3:-4], limit.elements)
    round_, phase, last = (reader.varint("a stamp", most=_STAMP_MOST) for _ in range(3))
    stamp = Stamp(round_, phase, (last - 1, reader.varint("a stamp", most=_STAMP_MOST)) if last else None)
    if seen is None:
        return Message(**_decode_parts(reader, limit, layout)).stamped(stamp)
    body = bytes(memoryview(data)[-4 - reader.remaining : -4])
    known = seen.get(body)
    if known is None:
        known = Message(**_decode_parts(reader, limit, layout)).parts
        seen.put(body, known)
    return Message.of(known, stamp)


def _decode_parts(reader: Reader, limit: Limit, layout: Tensors | None) -> dict[str, Part]:
    count = reader.varint("the number of parts")
    if count > limit.parts:
        raise WireError(f"the frame holds {count} parts, at most {limit.parts} are allowed")
    found: dict[str, Part] = {}
    for _ in range(count):
        kind = reader.byte("the kind of a part")
        name = _decode_name(reader)
        if name in found:
            raise WireError(f"two parts are called {name!r}")
        found[name] = parts.decode(kind, reader, layout)
    if reader.remaining:
        raise WireError(f"{reader.remaining} bytes follow the last part")
    return found


def _encode_name(name: str) -> bytes:
    try:
        text = name.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"the part name {name!r} is not text") from error
    if len(text) > 255:
        raise WireError(f"the part name {name[:20]!r}... has {len(text)} bytes, at most 255 are possible")
    return bytes([len(text)]) + text


def _decode_name(reader: Reader) -> str:
    text = bytes(reader.take(reader.byte("the length of a name"), "the name of a part"))
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise WireError("the name of a part is not UTF-8") from error
