"""Frames: a whole message as bytes, sealed with a checksum.

    magic        2 bytes   b7 53
    version      1 byte    4
    stamp        varints   round, phase; 0, or the acknowledged round + 1 and phase
    parts        varint    twice how many, plus one if some of them are coded against a reference
    reference    8 bytes   its fingerprint, if there is one
    each part    1 byte    its kind
                 1 byte    the length of its name
                 ...       its name in UTF-8
                 ...       its body, see docs/wire-format.md
    checksum     4 bytes   the low half of the XXH3-64 of all before it, little-endian

A damaged frame fails the checksum. A hostile one has a right checksum, so nothing that is read is trusted:
every number is checked before it is used, and :class:`Limit` bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any, SupportsIndex

import numpy as np
import xxhash

from sparsona.errors import MissingReference, WireError
from sparsona.message import Message, Part, Stamp
from sparsona.wire import kinds
from sparsona.wire.buffers import Ledger, Piece, Reader, varint
from sparsona.wire.kinds import AGAINST, PackingName, Tensors
from sparsona.wire.references import FINGERPRINT, Reference, content, made_of

MAGIC = b"\xb7S"
VERSION = 4
CHECKSUM = 4  # bytes of a checksum
_STAMP_MOST = 2**62
_SHORTEST = 2 + 1 + 3 + 1 + 4  # bytes of a message without parts
LONGEST_EMPTY = 32  # Bytes. A longer frame has parts, while rounds and phases are below 2**41.


@dataclass(frozen=True)
class Limit:
    """The memory that a receiver grants; checked before anything is allocated.

    `elements` is the largest number of numbers that all parts of one message may hold once decoded. A sparse part, a
    mask and a ternary part count with their full length, since their reader will unfold them.
    """

    elements: int
    parts: int = 64

    @property
    def bytes(self) -> int:
        """Return a length that no frame of `elements` numbers exceeds."""
        return 16 * self.elements + 1024 * (self.parts + 1)


@dataclass(frozen=True, eq=False)
class Frame:
    """An encoded message, and where its bytes went.

    The bytes are in pieces that follow each other: frames for many clients share the piece that is the same. Frames
    are equal if their bytes are, however they are cut.
    """

    pieces: tuple[bytes, ...]
    ledger: Ledger

    @property
    def data(self) -> bytes:
        """Return all bytes in one piece."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and (self.data, self.ledger) == (other.data, other.ledger)

    def __hash__(self) -> int:
        return hash(self.data)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Let pickle send the pieces out of band, without copies."""
        if int(protocol) < 5:
            return super().__reduce_ex__(protocol)
        return Frame, (tuple(PickleBuffer(piece) for piece in self.pieces), self.ledger)


class EncodeCache:
    """Keep the last encoded bodies: a part that goes to many clients is encoded once.

    A body is found by the content of its part and of its reference. An array must not change while a cache that has
    seen it is in use. Make a new cache for every turn.
    """

    KEPT = 8

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[int, Piece]] = {}
        self._last: tuple[tuple[Any, ...], tuple[Piece, bool]] | None = None

    def parts(
        self, parts: Mapping[str, Part], layout: Tensors | None, packing: PackingName, known: Mapping[str, Part]
    ) -> tuple[Piece, bool]:
        """Return what :func:`_encode_parts` does. The same objects as last time are recognised at once."""
        asked = (layout, packing, *parts.items(), *((name, known.get(name)) for name in parts))
        if self._last is None or not _all_same(self._last[0], asked):
            found, uses = _encode_parts(self.encode, parts, layout, packing, known)
            self._last = asked, (Piece((found.data,), found.ledger), uses)
        return self._last[1]

    def encode(
        self, part: Part, layout: Tensors | None, packing: PackingName, base: Part | None = None
    ) -> tuple[int, Piece]:
        """Encode a part as :func:`sparsona.wire.kinds.encode` does, with the cache."""
        if isinstance(part, int | float):
            return kinds.encode(part, layout, packing)
        asked = layout, packing, content(part), content(base)
        found = self._kept.pop(asked, None) or kinds.encode(part, layout, packing, base)
        self._kept[asked] = found
        if len(self._kept) > self.KEPT:
            del self._kept[next(iter(self._kept))]
        return found


def _all_same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Return whether these are the same objects, pair by pair."""
    return len(some) == len(others) and all(
        a is b or (isinstance(a, tuple) and isinstance(b, tuple) and _all_same(a, b)) or (type(a) is str and a == b)
        for a, b in zip(some, others, strict=True)
    )


class DecodeCache:
    """Keep the last decoded parts: a part that many clients get is decoded once. Its arrays are read-only."""

    def __init__(self) -> None:
        self._start = b""
        self._body: bytes | memoryview = b""
        self._digest = b""
        self._parts: Mapping[str, Part] = {}

    def get(
        self, start: bytes, body: bytes | memoryview, decode_parts: Callable[[], Mapping[str, Part]]
    ) -> Mapping[str, Part]:
        """Return the parts in `body`, which follows `start`: the last ones if the bytes are the same, else decoded."""
        if body is self._body and start == self._start:
            return self._parts
        digest = xxhash.xxh3_128_digest(body)
        if digest != self._digest or start != self._start:
            self._parts = decode_parts()
            for part in self._parts.values():
                for held in made_of(part).values():
                    if isinstance(held, np.ndarray):
                        held.flags.writeable = False
        self._start, self._body, self._digest = start, body if isinstance(body, bytes) else b"", digest
        return self._parts


def encode(
    message: Message,
    layout: Tensors | None = None,
    cache: EncodeCache | None = None,
    packing: PackingName = "tight",
    reference: Reference | None = None,
) -> Frame:
    """Return the frame of `message`.

    `layout` holds the lengths of the model's tensors; if given, the receiver must give the same to
    :func:`decode`. `reference` holds parts that the receiver has; a part is coded against the one of its name there
    where that is shorter. Plain packing makes no use of it.

    >>> frame = encode(Message(examples=20))
    >>> frame.data.hex(), frame.ledger.total
    ('b753040000000200086578616d706c6573282544c89c', 22)
    """
    known: Mapping[str, Part] = {} if reference is None else reference.parts
    if cache is None:
        found, uses = _encode_parts(kinds.encode, message.parts, layout, packing, known)
    else:
        found, uses = cache.parts(message.parts, layout, packing, known)
    named = reference.fingerprint if reference is not None and uses else b""
    count = varint(2 * len(message) + uses)
    start = MAGIC + bytes([VERSION]) + _encode_stamp(message.stamp) + count + named
    pieces = (start, *found.chunks, _checksum(start, *found.chunks))
    ledger = Ledger.sum((found.ledger,), len(start) + CHECKSUM)
    return Frame((b"".join(pieces),) if cache is None else tuple(map(bytes, pieces)), ledger)


def _encode_parts(
    encode_part: Callable[[Part, Tensors | None, PackingName, Part | None], tuple[int, Piece]],
    parts: Mapping[str, Part],
    layout: Tensors | None,
    packing: PackingName,
    known: Mapping[str, Part],
) -> tuple[Piece, bool]:
    """Return the parts of a message as bytes, and whether one of them is coded against a reference."""
    chunks: list[bytes | memoryview] = []
    ledgers, header, uses = [], 0, False
    for name, part in parts.items():
        kind, body = encode_part(part, layout, packing, known.get(name))
        uses |= kind >= AGAINST
        start = bytes([kind]) + _encode_name(name)
        header += len(start)
        chunks += (start, *body.chunks)
        ledgers.append(body.ledger)
    return Piece(tuple(chunks), Ledger.sum(ledgers, header)), uses


def _checksum(*data: bytes | memoryview) -> bytes:
    """Return the checksum at the end of a frame. It detects damage, not malice."""
    whole = xxhash.xxh3_64()
    for piece in data:
        whole.update(piece)
    return whole.digest()[:-5:-1]


def decode(
    data: bytes | memoryview | tuple[bytes, ...],
    limit: Limit,
    layout: Tensors | None = None,
    cache: DecodeCache | None = None,
    references: Callable[[bytes], Reference | None] | None = None,
) -> Message:
    """Return the message in the frame `data`.

    Raises :class:`~sparsona.errors.WireError` if `data` is not a frame or exceeds `limit`.

    `data` is all bytes in one piece, or the pieces of a :class:`Frame` of this process.
    `cache` is for a receiver that gets the same parts repeatedly, always under the same limit and layout.
    `references` maps a fingerprint to the reference that the receiver holds. Where it has none, the frame is refused
    with a :class:`~sparsona.errors.MissingReference`.

    >>> decode(encode(Message(examples=20)).data, Limit(elements=100)).examples()
    20
    """
    pieces = data if isinstance(data, tuple) else (data,)
    first, size = pieces[0], sum(map(len, pieces))
    if first[:2] != MAGIC:
        raise WireError("these bytes are not a frame: they do not start as one")
    if size < _SHORTEST:
        raise WireError(f"the frame is truncated to {size} bytes")
    if first[2] != VERSION:
        raise WireError(f"the frame is of version {first[2]}, this program reads version {VERSION}")
    if size > limit.bytes:
        raise WireError(f"the frame has {size} bytes, at most {limit.bytes} can be needed here")
    *sealed, seal = pieces if len(pieces) == 3 else (memoryview(first)[:-CHECKSUM], first[-CHECKSUM:])
    if _checksum(*sealed) != seal:
        raise WireError("the frame is damaged: its checksum does not fit")
    reader = Reader(memoryview(sealed[0])[3:], limit.elements)
    stamp = _decode_stamp(reader)
    rest = memoryview(sealed[0])[len(sealed[0]) - reader.remaining :]
    count, uses = divmod(reader.varint("the number of parts"), 2)
    if count > limit.parts:
        raise WireError(f"the frame holds {count} parts, at most {limit.parts} are allowed")
    reference = _find(bytes(reader.take(FINGERPRINT, "the fingerprint of a reference")), references) if uses else None
    start = bytes(rest[: len(rest) - reader.remaining])
    if len(sealed) > 1 and reader.remaining:
        raise WireError("the pieces of the frame are not cut where its parts begin")
    body = sealed[1] if len(sealed) > 1 else rest[len(start) :]

    def decode_parts() -> dict[str, Part]:
        return _decode_parts(Reader(memoryview(body), limit.elements), count, layout, reference)

    return Message.of(decode_parts() if cache is None else cache.get(start, body, decode_parts), stamp)


def reference_in(start: bytes) -> bytes | None:
    """Return the fingerprint of the reference that one of our frames is coded against; None if there is none.

    `start` is the first piece of the frame, or the whole.

    >>> reference_in(encode(Message(examples=20)).pieces[0]) is None
    True
    """
    reader = Reader(memoryview(start)[3:], 0)
    _decode_stamp(reader)
    uses = reader.varint("the number of parts") % 2
    return bytes(reader.take(FINGERPRINT, "the fingerprint of a reference")) if uses else None


def _find(fingerprint: bytes, references: Callable[[bytes], Reference | None] | None) -> Reference:
    found = None if references is None else references(fingerprint)
    if found is None:
        raise MissingReference(fingerprint)
    if found.fingerprint != fingerprint:
        raise WireError(f"the frame refers to {fingerprint.hex()}, but {found.fingerprint.hex()} was found for it")
    return found


def _encode_stamp(stamp: Stamp) -> bytes:
    acked = (0,) if stamp.acked is None else (stamp.acked[0] + 1, stamp.acked[1])
    rounds = (stamp.round, stamp.phase, *acked)
    if min(rounds) < 0 or max(rounds) > _STAMP_MOST or (stamp.acked is not None and stamp.acked[0] < 0):
        raise WireError(f"{stamp} cannot travel: rounds and phases count from 0")
    return b"".join(varint(n) for n in rounds)


def _decode_stamp(reader: Reader) -> Stamp:
    round_, phase, acked = (reader.varint("a stamp", most=_STAMP_MOST) for _ in range(3))
    last = (acked - 1, reader.varint("a stamp", most=_STAMP_MOST)) if acked else None
    return Stamp(round_, phase, last)


def _decode_parts(reader: Reader, count: int, layout: Tensors | None, reference: Reference | None) -> dict[str, Part]:
    found: dict[str, Part] = {}
    known: Mapping[str, Part] = {} if reference is None else reference.parts
    used = False
    for _ in range(count):
        kind = reader.byte("the kind of a part")
        name = _decode_name(reader)
        if name in found:
            raise WireError(f"two parts are called {name!r}")
        found[name] = kinds.decode(kind, reader, layout, known.get(name))
        used |= kind >= AGAINST
    if reader.remaining:
        raise WireError(f"{reader.remaining} bytes follow the last part")
    if reference is not None and not used:
        raise WireError("the frame names a reference that no part is coded against")
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
