"""What a hostile frame costs: at most five times what an honest one of the same limit costs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np
import pytest
from wire_cases import seal

from sparsona.errors import WireError
from sparsona.message import Levels, Message, Positions, Sparse, Ternary, Vector
from sparsona.wire import Limit, Reference, decode, encode
from sparsona.wire.buffers import varint

LAYOUT = (288, 32, 18432, 64, 16000, 10)
SIZE = sum(LAYOUT)
LIMIT = Limit(2 * SIZE + 4096)
EACH = LIMIT.elements // LIMIT.parts
RNG = np.random.default_rng(0)
WEIGHTS: Vector = (RNG.standard_normal(LIMIT.elements) * 0.02).astype(np.float32)
HELD = Reference.of({"v": WEIGHTS, **{f"v{i}": WEIGHTS[:64] for i in range(60)}})


def processor_time(frame: bytes) -> float:
    """The least of several, in seconds."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        with contextlib.suppress(WireError):
            decode(frame, LIMIT, LAYOUT, references=lambda _: HELD)
        times.append(time.thread_time() - start)
    return min(times)


def honest() -> Iterator[Message]:
    """Messages that use up the numbers or the parts of the limit."""
    mask = np.flatnonzero(RNG.random(SIZE) < 0.1)
    sparse = Sparse.take(WEIGHTS[:SIZE], mask)
    yield Message(v=WEIGHTS)
    yield Message(**{f"v{i}": WEIGHTS[i * EACH : (i + 1) * EACH] for i in range(LIMIT.parts)})
    yield Message(v=WEIGHTS + WEIGHTS[::-1] * np.float32(0.01))
    yield Message(a=sparse, b=sparse)
    yield Message(a=Ternary(LAYOUT, mask, mask % 2 == 0, np.ones(len(LAYOUT), np.float32)))
    yield Message(a=Levels(LAYOUT, np.repeat(WEIGHTS, 10)[:SIZE]))


def crafted() -> Iterator[tuple[str, bytes]]:
    """Frames that make the receiver build what they do not fill."""

    def frame(message: Message) -> bytes:
        return encode(message, LAYOUT, reference=HELD).data

    def sealed(body: bytes) -> bytes:
        return seal(b"\xb7S\x04\0\0\0\x02" + body + bytes(4))

    count = len(LAYOUT)
    places, ones = np.arange(count), np.ones(count, np.float32)
    ternary = Ternary((1,) * count, places, places % 2 == 0, ones)
    powers = np.exp2(np.arange(-126, 120, 2)).astype(np.float32)
    noise = RNG.bytes(4 * SIZE)
    yield "tensors of one number", frame(Message(**{f"t{i}": ternary for i in range(LIMIT.parts)}))
    short = Levels((EACH // count - 1,) * count, np.repeat(WEIGHTS, 2)[: (EACH // count - 1) * count])
    yield "many short runs", frame(Message(**{f"t{i}": short for i in range(LIMIT.parts)}))
    many = np.resize(powers, EACH)
    yield "many exponents", frame(Message(**{f"v{i}": many for i in range(LIMIT.parts)}))
    yield "a palette each", frame(Message(**{f"v{i}": np.resize(powers[:100], EACH) for i in range(LIMIT.parts)}))
    near = WEIGHTS[:64] * np.float32(1.0001)
    yield "short differences", frame(Message(**{f"v{i}": near for i in range(60)}))
    yield "masks", frame(Message(**{f"p{i}": Positions(EACH, np.arange(0, EACH, 3)) for i in range(LIMIT.parts)}))
    head = b"\x11\x01x" + varint(2**15) + varint(2**14) + b"\x04"
    for width in (8, 64):
        yield f"a noisy grid of {width}", sealed(head + varint(width) + varint(len(noise)) + noise)
    table = b"\x02\x0d" + b"\xff" * 32 + b"\x03" + bytes(range(7)) + b"\0\xff" * 256
    yield "256 exponents in eight contexts", sealed(b"\x08\x01v" + varint(LIMIT.elements) + table + bytes(50))


@pytest.fixture(scope="module")
def dearest() -> float:
    return max(processor_time(encode(message, LAYOUT, reference=HELD).data) for message in honest())


CRAFTED = dict(crafted())


@pytest.mark.parametrize("what", CRAFTED)
def test_no_frame_costs_more_than_five_honest_ones(what: str, dearest: float) -> None:
    assert processor_time(CRAFTED[what]) <= 5 * dearest


@pytest.mark.parametrize("layout", [None, LAYOUT])
def test_a_part_has_no_more_tensors_than_the_layout(layout: tuple[int, ...] | None) -> None:
    most = 64 if layout is None else len(layout)
    tensors = (7,) * most
    data = encode(Message(g=Levels(tensors, np.zeros(7 * most, np.float32))), layout).data
    assert decode(data, LIMIT, layout).levels("g").sizes == tensors
    over = Levels((*tensors, 7), np.zeros(7 * most + 7, np.float32))
    with pytest.raises(WireError, match="tensors"):
        encode(Message(g=over), layout)
    body = b"\x14\x01g" + varint(most + 2) + b"\x07" * (most + 1) + b"\0\0"
    with pytest.raises(WireError, match=f"at most {most}"):
        decode(seal(b"\xb7S\x04\0\0\0\x02" + body + bytes(4)), LIMIT, layout)
