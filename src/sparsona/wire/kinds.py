"""The kinds of parts, one row each: its number in a frame, its class, its coder and its decoder.

A new kind of part is a class in :mod:`sparsona.message` and a row of :data:`KINDS`; the bytes of a row that has been
published never change.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from sparsona.errors import WireError
from sparsona.message import NUMBER_TYPES, Blocks, IndexSet, Levels, Numbers, Part, Positions, Sparse, Ternary, Vector
from sparsona.wire import against, floats, levels, numbers, positions
from sparsona.wire.buffers import Ledger, Piece, Reader, unzigzag, varint, zigzag
from sparsona.wire.references import FINGERPRINT

MOST_TENSORS = 64
"""The largest number of tensors of a part without a layout. With a layout, a part has no more tensors than it."""

Tensors = tuple[int, ...]
PackingName = Literal["tight", "plain"]


@dataclass(frozen=True)
class Packing:
    """The coders that a sender uses. The receiver need not know: a frame says how each piece of it is coded."""

    numbers: Callable[[Numbers], numbers.Chunks]
    floats: Callable[[Vector], bytes]
    positions: Callable[[int, IndexSet, Sequence[int] | None], Piece]


PACKINGS: Mapping[PackingName, Packing] = {
    "tight": Packing(numbers.tight, floats.encode, positions.encode),
    "plain": Packing(numbers.plain, floats.raw, positions.plain),
}


@dataclass(frozen=True)
class ReferenceCoder:
    """The coder of a part against one of its kind that the receiver holds; None if that is not shorter.

    `plain` returns the length of a part without any coding. The decoder claims the memory of its result.
    """

    encode: Callable[[Any, Any, Tensors | None], Piece | None]
    decode: Callable[[Reader, Any, Tensors | None], Part]
    plain: Callable[[Any], int]


@dataclass(frozen=True)
class Kind:
    """One kind of part. `holds` identifies it: a class, the type of an array, or "single" for a float of 32 bits."""

    holds: type | np.dtype[Any] | Literal["single"]
    encode: Callable[[Any, Tensors | None, Packing], Piece]
    decode: Callable[[Reader, Tensors | None], Part]
    against: ReferenceCoder | None = None


def number_of(part: Part) -> int:
    """Return the number of the kind of `part`, as a frame names it."""
    if isinstance(part, np.ndarray):
        return _NUMBERS[part.dtype]
    if isinstance(part, float):
        return _NUMBERS["single" if _is_single(part) else float]
    return _NUMBERS[type(part)]


def tensors_of(size: int, layout: Tensors | None) -> Tensors | None:
    """Return the layout if its lengths add up to `size`, else None."""
    return layout if layout is not None and sum(layout) == size else None


def _encode_integer(part: int, layout: Tensors | None, pack: Packing) -> Piece:
    if not -(2**63) <= part < 2**63:
        raise WireError(f"the integer {part} does not fit into 64 bits")
    return Piece.values(varint(zigzag(part)))


def _decode_integer(reader: Reader, layout: Tensors | None) -> int:
    reader.claim(1, "an integer")
    return unzigzag(reader.varint("an integer"))


def _is_single(number: float) -> bool:
    """Return whether float32 holds the number to the bit, the payload of a NaN included."""
    try:
        single = struct.pack("<f", number)
    except OverflowError:
        return False
    return struct.pack("<d", struct.unpack("<f", single)[0]) == struct.pack("<d", number)


def _encode_real(code: str, part: float, layout: Tensors | None, pack: Packing) -> Piece:
    return Piece.values(struct.pack(code, part))


def _decode_real(code: str, reader: Reader, layout: Tensors | None) -> float:
    reader.claim(1, "a real number")
    return float(struct.unpack(code, reader.take(struct.calcsize(code), "a real number"))[0])


def _encode_numbers(part: Numbers, layout: Tensors | None, pack: Packing) -> Piece:
    length, chunks = varint(len(part)), pack.numbers(part)
    return Piece((length, *chunks), Ledger(header=len(length), values=sum(map(len, chunks))))


def _decode_numbers(type: str, reader: Reader, layout: Tensors | None) -> Numbers:
    count = reader.varint("the length of a vector")
    reader.claim(count, "a vector")
    return numbers.decode(reader, type, count)


def _decode_numbers_against(reader: Reader, base: Numbers, layout: Tensors | None) -> Numbers:
    reader.claim(len(base), "a vector")
    return against.decode_numbers(reader, base, tensors_of(len(base), layout))


def _encode_sparse(part: Sparse, layout: Tensors | None, pack: Packing) -> Piece:
    where = _encode_positions(Positions.of_sorted(part.size, part.indices), layout, pack)
    return Piece.join([where, Piece.values(pack.floats(part.values))])


def _decode_sparse(reader: Reader, layout: Tensors | None) -> Sparse:
    where = _decode_positions(reader, layout)
    return Sparse.of_sorted(where.size, where.indices, floats.decode(reader, len(where.indices)))


def _encode_positions(part: Positions, layout: Tensors | None, pack: Packing) -> Piece:
    header = Piece.header(varint(part.size) + varint(len(part.indices)))
    return Piece.join([header, pack.positions(part.size, part.indices, tensors_of(part.size, layout))])


def _decode_positions(reader: Reader, layout: Tensors | None) -> Positions:
    size = reader.varint("the length of a vector")
    reader.claim(size, "a sparse vector")
    count = reader.varint("the number of positions", most=size)
    return Positions.of_sorted(size, positions.decode(reader, size, count, tensors_of(size, layout)))


def _decode_positions_against(reader: Reader, base: Positions, layout: Tensors | None) -> Positions:
    reader.claim(base.size, "a set of positions")
    return against.decode_positions(reader, base, tensors_of(base.size, layout))


def _encode_blocks(part: Blocks, layout: Tensors | None, pack: Packing) -> Piece:
    return Piece.join(
        [
            Piece.header(varint(part.count) + varint(len(part.kept)) + varint(len(part.values))),
            pack.positions(part.count, part.kept, None),
            Piece.values(pack.floats(part.values)),
        ]
    )


def _decode_blocks(reader: Reader, layout: Tensors | None) -> Blocks:
    count = reader.varint("the number of blocks")
    reader.claim(count, "a set of blocks")
    kept = reader.varint("the number of kept blocks", most=count)
    length = reader.varint("the length of the blocks")
    reader.claim(length, "the values of blocks")
    return Blocks(count, positions.decode(reader, count, kept, None), floats.decode(reader, length))


def _encode_ternary(part: Ternary, layout: Tensors | None, pack: Packing) -> Piece:
    negative = np.flatnonzero(part.negative)
    size, count = sum(part.sizes), len(part.indices)
    return Piece.join(
        [
            _encode_sizes(part.sizes, layout),
            Piece.header(varint(count) + varint(len(negative))),
            pack.positions(size, part.indices, part.sizes),
            Piece.values(pack.positions(count, negative, None).data),
            Piece.values(pack.floats(part.magnitudes)),
        ]
    )


def _decode_ternary(reader: Reader, layout: Tensors | None) -> Ternary:
    sizes = _decode_sizes(reader, layout)
    count = reader.varint("the number of positions", most=sum(sizes))
    minus = reader.varint("the number of negative entries", most=count)
    indices = positions.decode(reader, sum(sizes), count, sizes)
    negative = Positions.of_sorted(count, positions.decode(reader, count, minus, None)).mask()
    return Ternary(sizes, indices, negative, floats.decode(reader, len(sizes)))


def _encode_levels(part: Levels, layout: Tensors | None, pack: Packing) -> Piece:
    values = Piece.values(levels.encode(part.sizes, part.values, pack.floats))
    return Piece.join([_encode_sizes(part.sizes, layout), values])


def _decode_levels(reader: Reader, layout: Tensors | None) -> Levels:
    sizes = _decode_sizes(reader, layout)
    return Levels(sizes, levels.decode(reader, sizes))


def _encode_sizes(sizes: Tensors, layout: Tensors | None) -> Piece:
    """Write a zero and the layout's fingerprint if both sides know the sizes; else their number + 1, and each."""
    if sizes == layout:
        return Piece.header(b"\0" + positions.fingerprint(sizes))
    most = _most_tensors(layout)
    if len(sizes) > most:
        raise WireError(f"a part has {len(sizes)} tensors, at most {most} can travel here")
    return Piece.header(varint(len(sizes) + 1) + b"".join(varint(n) for n in sizes))


def _decode_sizes(reader: Reader, layout: Tensors | None) -> Tensors:
    count = reader.varint("the number of tensors")
    if count == 0:
        sizes = positions.checked(reader, layout)
        reader.claim(len(sizes) + sum(sizes), "the tensors")
        return sizes
    if count - 1 > _most_tensors(layout):
        raise WireError(f"a part has {count - 1} tensors, at most {_most_tensors(layout)} are allowed")
    reader.claim(count - 1, "the list of tensors")
    sizes = tuple(reader.varint("the length of a tensor") for _ in range(count - 1))
    reader.claim(sum(sizes), "the tensors")
    return sizes


def _most_tensors(layout: Tensors | None) -> int:
    return MOST_TENSORS if layout is None else max(1, len(layout))


NUMBERS_AGAINST = ReferenceCoder(
    lambda part, base, layout: against.encode_numbers(part, base, tensors_of(len(part), layout)),
    _decode_numbers_against,
    lambda part: int(part.nbytes),
)
POSITIONS_AGAINST = ReferenceCoder(
    lambda part, base, layout: against.encode_positions(part, base, tensors_of(part.size, layout)),
    _decode_positions_against,
    lambda part: positions.plain_size(part.size, len(part.indices)),
)

KINDS: Mapping[int, Kind] = {
    0: Kind(int, _encode_integer, _decode_integer),
    1: Kind(float, partial(_encode_real, "<d"), partial(_decode_real, "<d")),
    2: Kind("single", partial(_encode_real, "<f"), partial(_decode_real, "<f")),
    **{
        number: Kind(np.dtype(type), _encode_numbers, partial(_decode_numbers, type), NUMBERS_AGAINST)
        for number, type in enumerate(NUMBER_TYPES, start=8)
    },
    16: Kind(Sparse, _encode_sparse, _decode_sparse),
    17: Kind(Positions, _encode_positions, _decode_positions, POSITIONS_AGAINST),
    18: Kind(Blocks, _encode_blocks, _decode_blocks),
    19: Kind(Ternary, _encode_ternary, _decode_ternary),
    20: Kind(Levels, _encode_levels, _decode_levels),
}
"""All kinds by their number in a frame."""

_NUMBERS = {kind.holds: number for number, kind in KINDS.items()}


AGAINST = 64  # added to the kind of a part that is coded against the part of the same name in the reference
NAMING = FINGERPRINT  # the bytes that naming the reference costs: a part is coded against it if that saves more


def encode(
    part: Part, layout: Tensors | None, packing: PackingName = "tight", base: Part | None = None
) -> tuple[int, Piece]:
    """Return the kind of `part` and its body: against `base`, which the receiver has, if that is shorter."""
    number = number_of(part)
    body = None if base is None or packing == "plain" else _encode_against(number, part, base, layout)
    if body is not None:
        below = body.ledger.total + NAMING
        if isinstance(part, np.ndarray) and part.dtype == np.float32 and floats.encode_below(part, below) is None:
            return number + AGAINST, body
    alone = KINDS[number].encode(part, layout, PACKINGS[packing])
    return (number, alone) if body is None or alone.ledger.total <= below else (number + AGAINST, body)


def _encode_against(number: int, part: Part, base: Part, layout: Tensors | None) -> Piece | None:
    way = KINDS[number].against
    body = way.encode(part, base, layout) if way is not None and against.fits(part, base) else None
    if way is None or body is None:
        return None
    return Piece(body.chunks, replace(body.ledger, against=body.ledger.total, against_plain=way.plain(part)))


def decode(kind: int, reader: Reader, layout: Tensors | None, base: Part | None = None) -> Part:
    """Return the part of `kind` that comes next; `base` is the part of its name in the reference."""
    if kind in KINDS:
        return KINDS[kind].decode(reader, layout)
    way = KINDS[kind - AGAINST].against if kind - AGAINST in KINDS else None
    if way is None:
        raise WireError(f"a part is of kind {kind}, which does not exist")
    if base is None or number_of(base) != kind - AGAINST:
        held = "nothing" if base is None else f"a {type(base).__name__}"
        raise WireError(f"a part of kind {kind - AGAINST} is coded against {held} in the reference")
    return way.decode(reader, base, layout)
