"""The body of every kind of part, and back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sparsona.errors import WireError
from sparsona.message import (
    NUMBER_TYPES,
    Blocks,
    IndexSet,
    Levels,
    Mask,
    Numbers,
    Part,
    Positions,
    Sparse,
    Ternary,
    Vector,
)
from sparsona.wire import against, floats, levels, numbers, positions
from sparsona.wire.buffers import Piece, Reader, unzigzag, varint, zigzag
from sparsona.wire.ledger import Ledger
from sparsona.wire.references import FINGERPRINT

INTEGER, DOUBLE, SINGLE, NUMBERS, SPARSE, POSITIONS, BLOCKS, TERNARY, LEVELS = 0, 1, 2, 8, 16, 17, 18, 19, 20
"""The number of a kind. Vectors are NUMBERS plus the place of their type in NUMBER_TYPES."""

_KINDS = {np.dtype(name): NUMBERS + place for place, name in enumerate(NUMBER_TYPES)}

AGAINST = 64
"""Added to the kind of a part that is coded against the part of the same name in the reference."""

NAMING = FINGERPRINT
"""What a frame pays for naming its reference, in bytes: a part is coded against it if that saves more."""

MOST_TENSORS = 64
"""The most tensors of a part if there is no layout. If there is one, a part has no more tensors than the layout."""

Tensors = tuple[int, ...]
PackingName = Literal["tight", "plain"]


@dataclass(frozen=True)
class Packing:
    """How hard the sender tries. The receiver need not know: a frame says how each piece of it is coded."""

    numbers: Callable[[Numbers], numbers.Chunks]
    floats: Callable[[Vector], bytes]
    positions: Callable[[int, IndexSet, Sequence[int] | None], Piece]


PACKINGS: Mapping[PackingName, Packing] = {
    "tight": Packing(numbers.tight, floats.encode, positions.encode),
    "plain": Packing(numbers.plain, floats.raw, positions.plain),
}


def encode(
    part: Part, layout: Tensors | None, packing: PackingName = "tight", base: Part | None = None
) -> tuple[int, Piece]:
    """The kind of `part` and its body: against `base`, which the receiver has, if that is shorter."""
    body = None if base is None or packing == "plain" else _encode_against(part, base, layout)
    if body is None:
        return _encode_alone(part, layout, PACKINGS[packing])
    below = body.ledger.total + NAMING
    if isinstance(part, np.ndarray) and part.dtype == np.float32 and floats.encode_below(part, below) is None:
        return NUMBERS + AGAINST, body
    kind, alone = _encode_alone(part, layout, PACKINGS[packing])
    return (kind, alone) if alone.ledger.total <= below else (kind + AGAINST, body)


def _encode_against(part: Part, base: Part, layout: Tensors | None) -> Piece | None:
    if not against.fits(part, base):
        return None
    if isinstance(part, Positions) and isinstance(base, Positions):
        body: Piece | None = against.encode_positions(part, base, _tensors(part.size, layout))
        plain = positions.plain_size(part.size, len(part.indices))
    elif isinstance(part, np.ndarray) and isinstance(base, np.ndarray):
        body, plain = against.encode_numbers(part, base, _tensors(len(part), layout)), part.nbytes
    else:
        return None
    if body is None:
        return None
    return Piece(body.chunks, replace(body.ledger, against=body.ledger.total, against_plain=plain))


def _encode_alone(part: Part, layout: Tensors | None, pack: Packing) -> tuple[int, Piece]:
    if isinstance(part, np.ndarray):
        length, chunks = varint(len(part)), pack.numbers(part)
        ledger = Ledger(header=len(length), values=sum(map(len, chunks)))
        return _KINDS[part.dtype], Piece((length, *chunks), ledger)
    if isinstance(part, Sparse):
        return SPARSE, Piece.join(
            [
                Piece.header(varint(part.size) + varint(len(part.indices))),
                pack.positions(part.size, part.indices, _tensors(part.size, layout)),
                Piece.values(pack.floats(part.values)),
            ]
        )
    if isinstance(part, Positions):
        return POSITIONS, Piece.join(
            [
                Piece.header(varint(part.size) + varint(len(part.indices))),
                pack.positions(part.size, part.indices, _tensors(part.size, layout)),
            ]
        )
    if isinstance(part, Blocks):
        return BLOCKS, Piece.join(
            [
                Piece.header(varint(part.count) + varint(len(part.kept)) + varint(len(part.values))),
                pack.positions(part.count, part.kept, None),
                Piece.values(pack.floats(part.values)),
            ]
        )
    if isinstance(part, Ternary):
        return TERNARY, _encode_ternary(part, layout, pack)
    if isinstance(part, Levels):
        body = [_encode_sizes(part.sizes, layout), Piece.values(levels.encode(part.sizes, part.values, pack.floats))]
        return LEVELS, Piece.join(body)
    if isinstance(part, int):
        if not -(2**63) <= part < 2**63:
            raise WireError(f"the integer {part} does not fit into 64 bits")
        return INTEGER, Piece.values(varint(zigzag(part)))
    return _encode_real(part)


def decode(kind: int, reader: Reader, layout: Tensors | None, base: Part | None = None) -> Part:
    """The part of `kind` that the reader stands before; `base` is the part of its name in the reference."""
    if kind - AGAINST in (*range(NUMBERS, NUMBERS + len(NUMBER_TYPES)), POSITIONS):
        return _decode_against(kind - AGAINST, reader, layout, base)
    if kind == INTEGER:
        reader.claim(1, "an integer")
        return unzigzag(reader.varint("an integer"))
    if kind in (DOUBLE, SINGLE):
        reader.claim(1, "a real number")
        code = "<d" if kind == DOUBLE else "<f"
        return float(struct.unpack(code, reader.take(struct.calcsize(code), "a real number"))[0])
    if NUMBERS <= kind < NUMBERS + len(NUMBER_TYPES):
        count = reader.varint("the length of a vector")
        reader.claim(count, "a vector")
        return numbers.decode(reader, NUMBER_TYPES[kind - NUMBERS], count)
    if kind in (SPARSE, POSITIONS):
        size = reader.varint("the length of a vector")
        reader.claim(size, "a sparse vector")
        count = reader.varint("the number of positions", most=size)
        indices = positions.decode(reader, size, count, _tensors(size, layout))
        if kind == POSITIONS:
            return Positions.of_sorted(size, indices)
        return Sparse.of_sorted(size, indices, floats.decode(reader, count))
    if kind == BLOCKS:
        count = reader.varint("the number of blocks")
        reader.claim(count, "a set of blocks")
        kept = reader.varint("the number of kept blocks", most=count)
        length = reader.varint("the length of the blocks")
        reader.claim(length, "the values of blocks")
        return Blocks(count, positions.decode(reader, count, kept, None), floats.decode(reader, length))
    if kind == TERNARY:
        return _decode_ternary(reader, layout)
    if kind == LEVELS:
        sizes = _decode_sizes(reader, layout)
        return Levels(sizes, levels.decode(reader, sizes))
    raise WireError(f"a part is of kind {kind}, which does not exist")


def _decode_against(kind: int, reader: Reader, layout: Tensors | None, base: Part | None) -> Part:
    if isinstance(base, Positions) and kind == POSITIONS:
        reader.claim(base.size, "a set of positions")
        return against.decode_positions(reader, base, _tensors(base.size, layout))
    if isinstance(base, np.ndarray) and kind == NUMBERS + NUMBER_TYPES.index(base.dtype.name):
        reader.claim(len(base), "a vector")
        return against.decode_numbers(reader, base, _tensors(len(base), layout))
    held = "nothing" if base is None else f"a {type(base).__name__}"
    raise WireError(f"a part of kind {kind} is coded against {held} in the reference")


def _tensors(size: int, layout: Tensors | None) -> Tensors | None:
    """The layout, if it is one of vectors of `size`."""
    return layout if layout is not None and sum(layout) == size else None


def _encode_real(number: float) -> tuple[int, Piece]:
    double = struct.pack("<d", number)
    try:
        single = struct.pack("<f", number)
    except OverflowError:
        return DOUBLE, Piece.values(double)
    exact = struct.pack("<d", struct.unpack("<f", single)[0]) == double
    return (SINGLE, Piece.values(single)) if exact else (DOUBLE, Piece.values(double))


def _encode_sizes(sizes: Tensors, layout: Tensors | None) -> Piece:
    """A zero and the layout's fingerprint if both sides know them; else one more than how many, and each."""
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
    negative = _mask(count, positions.decode(reader, count, minus, None))
    return Ternary(sizes, indices, negative, floats.decode(reader, len(sizes)))


def _mask(size: int, indices: Sequence[int] | np.ndarray) -> Mask:
    out = np.zeros(size, np.bool_)
    out[indices] = True
    return out
