"""Messages whose bytes are pinned in tests/golden/wire, and what the tests of the wire share."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from sparsona.message import Blocks, Levels, Message, Part, Positions, Sparse, Stamp, Ternary
from sparsona.wire import Frame, Limit, Reference, Tensors, decode, encode

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"
LIMIT = Limit(elements=50_000)
LAYOUT = (1200, 20, 1280, 10)


@dataclass(frozen=True)
class Case:
    name: str
    message: Message
    layout: Tensors | None = None
    reference: Reference | None = None

    @property
    def frame(self) -> Frame:
        return encode(self.message, self.layout, reference=self.reference)

    def read(self, data: bytes, limit: Limit = LIMIT) -> Message:
        """What a receiver that holds the case's layout and reference makes of `data`."""
        held = self.reference
        return decode(data, limit, self.layout, references=lambda asked: held if held_is(held, asked) else None)


def held_is(held: Reference | None, asked: bytes) -> bool:
    return held is not None and held.fingerprint == asked


def same_part(a: Part, b: Part) -> bool:
    """Bit for bit: types, lengths and patterns."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(same_part(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    return bool(a == b)


def same(a: Message, b: Message) -> bool:
    alike = list(a) == list(b) and a.stamp == b.stamp
    return alike and all(same_part(a.parts[name], b.parts[name]) for name in a)


def seal(frame: bytes) -> bytes:
    """`frame` with the checksum that fits it, as an attacker would write it."""
    return frame[:-4] + (xxhash.xxh3_64_intdigest(frame[:-4]) % 2**32).to_bytes(4, "little")


def dice(count: int, seed: int) -> npt.NDArray[np.uint32]:
    """Numbers that look random and are the same on every machine: a linear congruential generator, upper half."""
    out, state = np.zeros(count, np.uint32), seed * 2 + 1
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        out[i] = state >> 32
    return out


def bell(count: int, seed: int) -> npt.NDArray[np.float32]:
    """Sums of four dice, about normal, without a function that may differ between machines."""
    rolls = dice(4 * count, seed).reshape(4, count).astype(np.float64) / 2**32 - 0.5
    out: npt.NDArray[np.float32] = (rolls.sum(axis=0) * 0.125).astype(np.float32)
    return out


def update(count: int, seed: int) -> npt.NDArray[np.float32]:
    """A difference of weights, some of which did not change."""
    before = bell(count, seed)
    after = before + bell(count, seed + 1) * np.float32(2**-9)
    return np.where(dice(count, seed + 2) % 8 > 0, after - before, np.float32(0))


def moved(count: int, seed: int) -> npt.NDArray[np.float32]:
    """The weights of :func:`bell` after a step."""
    return bell(count, seed) + bell(count, seed + 100) * np.float32(2**-7)


def powers(count: int, seed: int) -> npt.NDArray[np.float32]:
    """Powers of two from 2**-9 to 2**-2, small ones more often, of both signs."""
    rolls = dice(count, seed)
    exponents = np.minimum(rolls % 8, rolls // 8 % 8).astype(np.int32) - 9
    return np.ldexp(np.where(rolls >> 31, np.float32(-1), np.float32(1)), exponents)


def scattered(size: int, one_in: int, seed: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(dice(size, seed) % one_in == 0)


def striped(rows: int, columns: int, seed: int) -> npt.NDArray[np.int64]:
    """Positions in some columns of some rows, as real updates have them."""
    active = (dice(rows, seed) % 4 == 0)[:, None] & (dice(columns, seed + 1) % 3 == 0)[None, :]
    noise = dice(rows * columns, seed + 2).reshape(rows, columns) % 16 == 0
    return np.flatnonzero(active ^ (noise & (dice(rows, seed) % 4 == 0)[:, None]))


def cases() -> list[Case]:
    """One of every kind of part, in every way that it can be coded."""
    odd = np.array([0x7FC00001, 0xFF800001, 0x80000000, 0x00000001, 0x7F800000, 0x3F800000], np.uint32)
    whole = np.concatenate([scattered(1200, 3, 1), 1200 + np.arange(20), 1220 + scattered(1280, 40, 2)])
    grid = np.concatenate([striped(24, 50, 3), 1220 + striped(32, 40, 4)])
    steps = np.repeat(np.array([0.5, -0.25, 0.0, -0.0, 0.5], np.float32), [40, 3, 200, 1, 9])
    mask, grown = Positions(5000, scattered(5000, 3, 31)), Positions(2510, whole)
    counts = (dice(300, 31) % 10_000).astype(np.int64)
    held = Reference.of({"v": bell(500, 26), "h": bell(300, 30).astype(np.float16), "n": counts, "p": mask})
    return [
        Case("integer", Message(examples=1234)),
        Case("integers", Message(a=0, b=-1, c=2**63 - 1, d=-(2**63))),
        Case("reals", Message(a=0.5, b=0.1, c=float("inf"), d=-0.0, e=1e300)),
        Case("stamped", Message(x=1).stamped(Stamp(round=300, phase=2, acked=(299, 1)))),
        Case("empty", Message().stamped(Stamp(round=3))),
        Case("names", Message(**{"": 1, "größe": 2, "self": 3, "a" * 255: 4})),
        Case("floats-empty", Message(v=np.zeros(0, np.float32))),
        Case("floats-raw", Message(v=odd.view(np.float32))),
        Case("floats-noise", Message(v=dice(100, 5).view(np.float32))),
        Case("floats-constant", Message(v=np.full(1000, 0.1, np.float32))),
        Case("floats-palette", Message(v=np.array([0.1, -0.2, 0.0, 0.3], np.float32)[dice(300, 6) % 4])),
        Case("floats-holes", Message(v=np.where(dice(2000, 6) % 9 == 0, bell(2000, 7), np.float32(0)))),
        Case("floats-weights", Message(v=bell(2000, 7))),
        Case("floats-update", Message(v=update(2000, 8))),
        Case("floats-positive", Message(v=np.abs(bell(500, 9)))),
        Case("floats-powers", Message(v=powers(400, 36))),
        Case("floats-powers-few", Message(v=powers(9, 37))),
        Case("floats-powers-signs", Message(v=np.abs(powers(300, 38)))),
        Case("float16", Message(v=bell(400, 10).astype(np.float16))),
        Case("int8", Message(v=(dice(300, 11) % 5).astype(np.int8) - np.int8(2))),
        Case("uint8", Message(v=(dice(40, 12) % 256).astype(np.uint8))),
        Case("int16", Message(v=np.array([-32768, 32767, 0, -1], np.int16))),
        Case("int32", Message(v=(dice(200, 13) % 1000).astype(np.int32) - np.int32(500))),
        Case("int64", Message(v=np.array([3, 0, 7, 120, -(2**63), 2**63 - 1], np.int64))),
        Case("int64-counts", Message(v=(dice(10, 14) % 100).astype(np.int64))),
        Case("positions-none", Message(p=Positions(1000, np.zeros(0, np.int64)))),
        Case("positions-all", Message(p=Positions(1000, np.arange(1000)))),
        Case("positions-bitmap", Message(p=Positions(301, scattered(301, 2, 15)))),
        Case("positions-list", Message(p=Positions(10_000, np.array([5, 77, 9999])))),
        Case("positions-absent", Message(p=Positions(3000, np.delete(np.arange(3000), [7, 2000])))),
        Case("positions-gaps", Message(p=Positions(5000, scattered(5000, 12, 16)))),
        Case("positions-tensors", Message(p=Positions(2510, whole)), LAYOUT),
        Case("positions-grid", Message(p=Positions(4000, striped(40, 100, 17)))),
        Case("positions-grid-layout", Message(p=Positions(2510, grid)), LAYOUT),
        Case("sparse", Message(u=Sparse.take(bell(3000, 18), scattered(3000, 10, 19)), examples=60)),
        Case("sparse-powers", Message(u=Sparse.take(powers(2510, 39), whole)), LAYOUT),
        Case("sparse-one", Message(u=Sparse(1, np.array([0]), np.array([np.nan], np.float32)))),
        Case("blocks", Message(b=Blocks(20, np.array([0, 3, 17]), bell(96, 20)))),
        Case("ternary", Message(t=_ternary((600, 40), 21))),
        Case("ternary-layout", Message(t=_ternary(LAYOUT, 22)), LAYOUT),
        Case("levels-runs", Message(g=Levels((100, 0, 153), steps))),
        Case("levels-mixed", Message(g=Levels((250, 40), np.concatenate([steps[:250], bell(40, 23)])))),
        Case("levels-floats", Message(g=Levels((200, 200), bell(400, 24)))),
        Case("levels-layout", Message(g=Levels(LAYOUT, np.repeat(bell(251, 25), 10))), LAYOUT),
        Case("against-same", Message(v=bell(500, 26), p=mask), reference=held),
        Case("against-floats", Message(v=moved(500, 26), examples=5), reference=held),
        Case("against-long", Message(v=moved(2510, 27)), LAYOUT, Reference.of({"v": bell(2510, 27)})),
        Case("against-far", Message(v=np.where(dice(500, 28) % 9, moved(500, 26), bell(500, 29))), reference=held),
        Case("against-added", Message(v=_stepped(bell(2510, 27), 41)), LAYOUT, Reference.of({"v": bell(2510, 27)})),
        Case("against-added-dense", Message(v=powers(500, 42) + powers(500, 43)), reference=_grid_reference(42)),
        Case("against-float16", Message(h=moved(300, 30).astype(np.float16)), reference=held),
        Case("against-int64", Message(n=counts + (dice(300, 32) % 7).astype(np.int64) - 3), reference=held),
        Case("against-positions", Message(p=_changed(mask, 33)), reference=held),
        Case("against-positions-layout", Message(q=_changed(grown, 34)), LAYOUT, Reference.of({"q": grown})),
        Case("against-nothing", Message(v=bell(500, 35), x=1), reference=held),
    ]


def _stepped(held: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
    """A vector one number in twelve of which has moved by a power of two."""
    return held + np.where(dice(len(held), seed) % 12 == 0, powers(len(held), seed + 1), np.float32(0))


def _grid_reference(seed: int) -> Reference:
    """A sum of powers of two: another one added to every number is exact."""
    return Reference.of({"v": powers(500, seed)})


def _ternary(sizes: tuple[int, ...], seed: int) -> Ternary:
    indices = scattered(sum(sizes), 9, seed)
    return Ternary(sizes, indices, dice(len(indices), seed + 1) % 2 == 0, bell(len(sizes), seed + 2))


def _changed(held: Positions, seed: int) -> Positions:
    """A mask in which one position in twenty changed."""
    return Positions.of(held.mask() ^ (dice(held.size, seed) % 20 == 0))
