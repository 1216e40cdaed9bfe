"""Code the body of a part against a part of the same kind and length, which the receiver has.

A byte says whether it is the same or how it differs. float32 vectors differ as :mod:`sparsona.wire.differences` says,
or by few or short numbers that are added to the old ones: where a model moves in some places by powers of two, only
these and their places are sent. Other numbers differ by an integer, which is coded as integers are. A set of
positions differs by the removed ones, as a set among the old ones, and by the added ones, as a set among the others.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, u32
from sparsona.errors import WireError
from sparsona.message import IndexSet, Numbers, Positions
from sparsona.wire import differences, floats, numbers, positions
from sparsona.wire.buffers import Piece, Reader, varint
from sparsona.wire.fields import Patterns
from sparsona.wire.references import same

SAME, DIFFERENT, ADDED = 0, 1, 2
_LONG = np.uint32(0xFFF)  # the bits of a number that is not short: it has a one among its last twelve


def fits(part: object, base: object) -> bool:
    """Return whether `part` may be coded against `base`: numbers of one type or positions, of equal length."""
    if isinstance(part, np.ndarray) and isinstance(base, np.ndarray):
        return part.dtype == base.dtype and len(part) == len(base)
    return isinstance(part, Positions) and isinstance(base, Positions) and part.size == base.size


def encode_numbers(part: Numbers, base: Numbers, layout: Sequence[int] | None) -> Piece | None:
    """Encode `part` against `base`, which :func:`fits`; return None if that is not shorter. `layout`: see
    `encode_positions`.
    """
    if same(part, base):
        return Piece.values(bytes([SAME]))
    if part.dtype == np.float32:
        added, short = _encode_added(part, base, layout)
        body = None if short else differences.encode(part, base)
        if added is not None and (body is None or added.ledger.total <= 1 + len(body)):
            return added
    else:
        steps: npt.NDArray[np.signedinteger] = (_ordered(part) - _ordered(base)).view(f"i{part.itemsize}")
        body = numbers.encode(steps)
    return None if body is None else Piece.values(bytes([DIFFERENT]) + body)


def decode_numbers(reader: Reader, base: Numbers, layout: Sequence[int] | None) -> Numbers:
    """Return the next numbers, of the type and length of `base`. The caller has claimed them."""
    way = _way(reader, ADDED if base.dtype == np.float32 else DIFFERENT)
    if way == SAME:
        return base.copy()
    if way == ADDED:
        return _decode_added(reader, base, layout)
    if base.dtype == np.float32:
        return differences.decode(reader, base)
    steps = numbers.decode(reader, f"int{8 * base.itemsize}", len(base))
    return _unordered(_ordered(base) + steps.view(f"u{base.itemsize}"), base.dtype)


def _encode_added(part: Numbers, base: Numbers, layout: Sequence[int] | None) -> tuple[Piece | None, bool]:
    """Code the numbers that are added to `base` and their places; return also whether this surely beats differences.

    The code is None where the sums do not give `part` to the bit, and where it would be longer.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        step = part - base
        moved, short = _moved(step.view(np.uint32))
        if not short and 4 * moved > 3 * len(step):
            return None, False
        places = np.flatnonzero(step)
        steps = step[places]
        if not same(_plus(base, places, steps), part):
            return None, False
    added = Piece.join(
        [
            Piece.header(bytes([ADDED]) + varint(len(places))),
            positions.encode(len(base), places, layout),
            Piece.values(floats.encode(steps)),
        ]
    )
    return added, short


@compiled
def _moved(steps: Patterns) -> tuple[int, bool]:
    """Count the steps that are not zero, and return whether all of them are short."""
    moved, bits = 0, u32(0)
    for step in steps:
        moved += (step & u32(0x7FFFFFFF)) != u32(0)
        bits |= step
    return moved, bits & _LONG == 0


def _decode_added(reader: Reader, base: Numbers, layout: Sequence[int] | None) -> Numbers:
    count = reader.varint("how many numbers are added", most=len(base))
    places = positions.decode(reader, len(base), count, layout)
    with np.errstate(over="ignore", invalid="ignore"):
        return _plus(base, places, floats.decode(reader, count))


def _plus(base: Numbers, places: IndexSet, steps: Numbers) -> Numbers:
    out = base.copy()
    out[places] += steps
    return out


def encode_positions(part: Positions, base: Positions, layout: Sequence[int] | None) -> Piece:
    """Encode `part` against `base`, which :func:`fits`; `layout` are the tensors' lengths, if both sides know them."""
    if same(part, base):
        return Piece.positions(bytes([SAME]), _bound(part, layout))
    present, old = part.mask(), base.mask()
    removed = np.flatnonzero(~present[base.indices])
    added = np.flatnonzero(present[~old])
    mine, others = _by_tensor(base, layout)
    return Piece.join(
        [
            Piece.header(bytes([DIFFERENT]) + varint(len(removed)) + varint(len(added))),
            Piece.positions(positions.encode(len(base.indices), removed, mine).data, _bound(part, layout)),
            Piece.positions(positions.encode(part.size - len(base.indices), added, others).data, 0.0),
        ]
    )


def decode_positions(reader: Reader, base: Positions, layout: Sequence[int] | None) -> Positions:
    """Return the next set of as many positions as `base` allows. The caller has claimed them."""
    if _way(reader, DIFFERENT) == SAME:
        return Positions(base.size, base.indices.copy())
    count, others = len(base.indices), base.size - len(base.indices)
    minus = reader.varint("the number of positions removed", most=count)
    plus = reader.varint("the number of positions added", most=others)
    mine, rest = _by_tensor(base, layout)
    mask = base.mask()
    outside: IndexSet = np.flatnonzero(~mask)
    mask[base.indices[positions.decode(reader, count, minus, mine)]] = False
    mask[outside[positions.decode(reader, others, plus, rest)]] = True
    return Positions.of(mask)


def _way(reader: Reader, most: int) -> int:
    way = reader.byte("how a part differs from its reference")
    if way > most:
        raise WireError(f"a part differs from its reference in way {way}, which does not exist")
    return way


def _bound(part: Positions, layout: Sequence[int] | None) -> float:
    if len(part.indices) in (0, part.size):
        return 0.0
    return positions.bound(part.size, *positions.by_tensor(part.size, part.indices, layout))


def _by_tensor(base: Positions, layout: Sequence[int] | None) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the number of positions of each tensor that are in `base`, and the number that are not."""
    if layout is None:
        return None, None
    counts, _ = positions.by_tensor(base.size, base.indices, layout)
    return counts, tuple(n - k for n, k in zip(layout, counts, strict=True))


def _ordered(values: Numbers) -> npt.NDArray[np.unsignedinteger]:
    """Return integers as they are; floats as integers that ascend with them, so that neighbours are one apart."""
    bits = values.view(f"u{values.itemsize}")
    if values.dtype.kind != "f":
        return bits
    top = bits.dtype.type(1 << (8 * values.itemsize - 1))
    return np.where(bits & top, ~bits, bits | top)


def _unordered(order: npt.NDArray[np.unsignedinteger], dtype: np.dtype[np.generic]) -> Numbers:
    if dtype.kind != "f":
        return order.view(dtype)
    top = order.dtype.type(1 << (8 * dtype.itemsize - 1))
    return np.where(order & top, order ^ top, ~order).view(dtype)
