"""Sets of positions as bitmaps: one bit per position, the lowest first, eight per byte."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.compiled import KERNEL, Places, compiled, i64, u64, zeros_at_end

Bits: TypeAlias = npt.NDArray[np.uint8]
IndexSet: TypeAlias = npt.NDArray[np.int64]


def bitmap(size: int, indices: IndexSet) -> Bits:
    """Return the bitmap of positions among `size`."""
    return _bitmap(size, np.require(indices, np.int64, KERNEL).view(np.uint64))


def places(bits: Bits) -> IndexSet:
    """Return the sorted positions in a bitmap."""
    words = np.zeros((len(bits) + 7) // 8, "<u8")
    words.view(np.uint8)[: len(bits)] = bits
    return _places(words.astype(np.uint64, copy=False))


@compiled
def _bitmap(size: int, indices: Places) -> Bits:
    out = np.zeros((size + 7) // 8, np.uint8)
    for place in indices:
        out[place >> u64(3)] |= np.uint8(1) << np.uint8(place & u64(7))
    return out


@compiled
def _places(words: Places) -> IndexSet:
    """Return the positions, with one step per set bit."""
    count = i64(0)
    for word in words:
        word -= word >> u64(1) & u64(0x5555555555555555)
        word = (word & u64(0x3333333333333333)) + (word >> u64(2) & u64(0x3333333333333333))
        count += i64((word + (word >> u64(4)) & u64(0x0F0F0F0F0F0F0F0F)) * u64(0x0101010101010101) >> u64(56))
    out, at = np.empty(count, np.int64), u64(0)
    for number in range(len(words)):
        word = words[number]
        while word:
            out[at] = number * 64 + zeros_at_end(word)
            word &= word - u64(1)
            at += u64(1)
    return out
