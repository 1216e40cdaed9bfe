"""Random streams within compiled code: the same numbers as numpy's generators give.

A kernel that draws a few numbers for each of many tensors would go back to Python for each of them. Here a stream is
seeded as numpy's SeedSequence does and drawn from as from numpy's Generator of a PCG64 (O'Neill 2014), to the bit.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64, u32, u64

Seed: TypeAlias = npt.NDArray[np.uint32]
"""The words that streams are derived from: see :meth:`sparsona.chance.Chance.words`."""

Stream: TypeAlias = npt.NDArray[np.uint64]
"""The state (high, low) and the increment (high, low) of a PCG64; whether half of its last number is left, and it."""

_HALF = 0xFFFFFFFF
_POOL = 4


@compiled
def stream(seed: Seed, layer: int) -> Stream:
    """The stream of a layer, as of ``Chance.rng``."""
    words = np.empty(len(seed) + 1, np.uint32)
    words[:-1], words[-1] = seed, layer
    state = _seeded(words)
    out = np.zeros(6, np.uint64)
    out[2] = state[2] << u64(1) | state[3] >> u64(63)
    out[3] = state[3] << u64(1) | u64(1)
    _step(out)
    low = out[1] + state[1]
    out[0], out[1] = out[0] + state[0] + u64(low < state[1]), low
    _step(out)
    return out


@compiled
def uniform(of: Stream, count: int) -> npt.NDArray[np.float32]:
    """So many numbers from 0 to 1, as of ``rng.random(count, np.float32)``."""
    out = np.empty(count, np.float32)
    for i in range(count):
        out[i] = np.float32(_word(of) >> u64(8)) * np.float32(2.0**-24)
    return out


@compiled
def integers(of: Stream, below: int, count: int) -> npt.NDArray[np.int64]:
    """So many integers from 0 to `below` - 1, as of ``rng.integers(0, below, count)``; `below` is less than 2**32."""
    out, many = np.zeros(count, np.int64), u64(below)
    for i in range(count if below > 1 else 0):
        product = _word(of) * many
        if product & u64(_HALF) < many:
            least = (u64(_HALF + 1) - many) % many
            while product & u64(_HALF) < least:
                product = _word(of) * many
        out[i] = i64(product >> u64(32))
    return out


@compiled
def _word(of: Stream) -> int:
    """The next 32 bits: the lower half of a number, then the upper one."""
    if of[4]:
        of[4] = u64(0)
        return u64(of[5])
    _step(of)
    mixed, turn = of[0] ^ of[1], of[0] >> u64(58)
    number = mixed >> turn | mixed << (u64(64) - turn & u64(63))
    of[4], of[5] = u64(1), number >> u64(32)
    return u64(number & u64(_HALF))


@compiled
def _step(of: Stream) -> None:
    """state * multiplier + increment, in 128 bits."""
    high, low = u64(0x2360ED051FC65DA4), u64(0x4385DF649FCCF645)
    product = of[1] * low + of[3]
    of[0] = of[0] * low + of[1] * high + _upper(of[1], low) + of[2] + u64(product < of[3])
    of[1] = product


@compiled
def _upper(one: int, other: int) -> int:
    """The upper 64 bits of a product."""
    a, b, c, d = one >> u64(32), one & u64(_HALF), other >> u64(32), other & u64(_HALF)
    middle = a * d + (b * d >> u64(32))
    return a * c + (middle >> u64(32)) + ((middle & u64(_HALF)) + b * c >> u64(32))


@compiled
def _seeded(words: Seed) -> Stream:
    """Four numbers out of words, as ``SeedSequence(words).generate_state(4, np.uint64)``."""
    pool, factor = np.zeros(_POOL, np.uint32), u32(0x43B0D7E5)
    for i in range(_POOL):
        pool[i], factor = _hashed(words[i] if i < len(words) else u32(0), factor, u32(0x931E8875))
    for source in range(_POOL):
        for i in range(_POOL):
            if i != source:
                other, factor = _hashed(pool[source], factor, u32(0x931E8875))
                pool[i] = _mixed(pool[i], other)
    for word in words[_POOL:]:
        for i in range(_POOL):
            other, factor = _hashed(word, factor, u32(0x931E8875))
            pool[i] = _mixed(pool[i], other)
    out, factor = np.zeros(4, np.uint64), u32(0x8B51F9DD)
    for i in range(8):
        word, factor = _hashed(pool[i % _POOL], factor, u32(0x58F38DED))
        out[i // 2] |= u64(word) << u64(32 * (i % 2))
    return out


@compiled
def _hashed(word: int, factor: int, by: int) -> tuple[int, int]:
    """A word hashed, and the factor for the next one."""
    following = u32(factor * by)
    word = u32(u32(word ^ factor) * following)
    return u32(word ^ word >> u32(16)), following


@compiled
def _mixed(one: int, other: int) -> int:
    mixed = u32(u32(0xCA01F9DD) * one - u32(0x4973F715) * other)
    return u32(mixed ^ mixed >> u32(16))
