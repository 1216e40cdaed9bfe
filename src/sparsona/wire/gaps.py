"""Index sets as gaps under a density, with the range coder of `constriction`.

If each position is in the set with the same chance p, the number of absent positions before the next
present one is geometric, and coding it so costs H(p)/p bits a position: the entropy bound. The density is
known to both sides, since the numbers of positions are. Gaps of `top` and more are split: the symbol `top`
says "`top` absent ones, and on", which costs nothing extra, for a geometric gap has no memory.

What this relies on to be the same everywhere: the table is made of integers; `constriction` turns them into
frequencies out of 2**24 with IEEE double arithmetic (sums, one division, products, floors; no `exp`, `log`
or `pow`); the goldens pin it.
"""

from __future__ import annotations

from collections.abc import Sequence

import constriction
import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64
from sparsona.errors import WireError
from sparsona.message import IndexSet
from sparsona.wire.buffers import Reader, varint

Gaps = npt.NDArray[np.int32]
Probabilities = npt.NDArray[np.float64]

_LONGEST = 1024
"""The most symbols for gaps."""


@compiled
def _table(present: int, size: int) -> Probabilities:
    """Probabilities, out of 2**30, of the gaps 0, 1, ... and last of all the longer ones."""
    out = np.zeros(_LONGEST + 1, np.float64)
    beyond = i64(1) << 30
    gap = 0
    while gap < _LONGEST and (gap == 0 or beyond > 1 << 20):
        longer = beyond * (size - present) // size
        out[gap] = beyond - longer
        beyond = longer
        gap += 1
    out[gap] = beyond
    return out[: gap + 1]


@compiled
def _to_symbols(indices: IndexSet, first: int, top: int) -> Gaps:
    count, last = len(indices), first - 1
    for index in indices:
        count += (index - last - 1) // top
        last = index
    out = np.empty(count, np.int32)
    at, last = 0, first - 1
    for index in indices:
        gap = index - last - 1
        while gap >= top:
            out[at] = top
            at += 1
            gap -= top
        out[at] = gap
        at += 1
        last = index
    return out


@compiled
def _from_symbols(symbols: Gaps, top: int, last: int, out: IndexSet, at: int) -> tuple[int, int]:
    """Positions after `last` into `out` from `at` on; where the reading stands, and how many are written."""
    for symbol in symbols:
        if symbol == top:
            last += top
        else:
            last += symbol + 1
            out[at] = last
            at += 1
    return last, at


def _model(present: int, size: int) -> tuple[object, int]:
    table = _table(present, size)
    return constriction.stream.model.Categorical(table, perfect=False), len(table) - 1


def encode(indices: IndexSet, tensors: Sequence[int], counts: Sequence[int]) -> bytes:
    """`indices` in consecutive ranges of lengths `tensors`, of which they hold `counts`; each has its own density."""
    coder = constriction.stream.queue.RangeEncoder()
    first = at = 0
    for size, present in zip(tensors, counts, strict=True):
        if 0 < present < size:
            model, top = _model(present, size)
            coder.encode(_to_symbols(indices[at : at + present], first, top), model)
        first, at = first + size, at + present
    words: npt.NDArray[np.uint32] = coder.get_compressed()
    return varint(len(words)) + words.astype("<u4", copy=False).tobytes()


def decode(reader: Reader, tensors: Sequence[int], counts: Sequence[int]) -> IndexSet:
    """The positions again; `counts` are within `tensors`."""
    length = reader.varint("the length of coded positions", most=reader.remaining // 4)
    words = reader.array("<u4", length, "coded positions").astype(np.uint32)
    out = np.empty(sum(counts), np.int64)
    first = at = 0
    try:
        decoder = constriction.stream.queue.RangeDecoder(words)
        for size, present in zip(tensors, counts, strict=True):
            if present == size:
                out[at : at + size] = np.arange(first, first + size)
            elif present:
                _decode_range(decoder, first, size, out[at : at + present])
            first, at = first + size, at + present
        whole = decoder.maybe_exhausted()
    except (AssertionError, ValueError) as error:
        raise WireError("coded positions do not fit their density") from error
    if not whole:
        raise WireError("coded positions are followed by something else")
    return out


def _decode_range(decoder: constriction.stream.queue.RangeDecoder, first: int, size: int, out: IndexSet) -> None:
    model, top = _model(len(out), size)
    last, at = first - 1, 0
    while at < len(out):
        last, at = _from_symbols(decoder.decode(model, len(out) - at), top, last, out, at)
        if last >= first + size:
            raise WireError(f"a coded position is {last - first}, beyond the {size} that there are")
