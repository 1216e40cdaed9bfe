"""Frames: what is refused and why, the ledger, and what is encoded only once."""

from __future__ import annotations

import sys
from unittest.mock import patch

import numpy as np
import pytest
from wire_cases import LAYOUT, cases, same, seal

from sparsona.errors import WireError
from sparsona.message import Blocks, Levels, Message, Positions, Sparse, Stamp, Ternary
from sparsona.wire import LONGEST_EMPTY, DecodeCache, EncodeCache, Frame, Ledger, Limit, decode, encode, kinds

ROOMY = Limit(elements=10**6)


def frame_of(body: bytes, count: int = 1) -> bytes:
    return seal(b"\xb7S\x04\0\0\0" + bytes([2 * count]) + body + bytes(4))


def test_the_ledger_adds_up_to_the_frame() -> None:
    for case in cases():
        frame = case.frame
        assert frame.ledger.total == len(frame.data), case.name


def test_the_ledger_tells_the_kinds_apart() -> None:
    indices = np.arange(0, 10_000, 7)
    ledger = encode(Message(u=Sparse(10_000, indices, np.ones(len(indices), np.float32)))).ledger
    assert ledger.header < 25
    assert 0 < ledger.positions < ledger.bound
    assert ledger.values < 10
    assert encode(Message(v=np.arange(9, dtype=np.float32))).ledger.positions == 0
    assert Ledger(1, 2, 3, 0.5) + Ledger(1, 2, 3, 0.5) == Ledger(2, 4, 6, 1.0)


def test_a_longer_frame_than_the_longest_empty_one_has_parts() -> None:
    last = 2**41 - 1
    assert len(encode(Message().stamped(Stamp(last, last, (last, last)))).data) == LONGEST_EMPTY


def test_headers_are_small() -> None:
    assert encode(Message(update=Positions(10**6, np.arange(0)), examples=3)).ledger.header <= 36


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK\x03\x04", "not a frame"),
        (b"\xb7S\x04", "truncated"),
        (frame_of(b"\0\x01x\x02").replace(b"S\x04", b"S\x03", 1), "version 3"),
        (encode(Message(x=1)).data[:-1], "checksum"),
        (encode(Message(x=1)).data + b"\0", "checksum"),
        (frame_of(b"\0\x01x\x02\0"), "follow the last part"),
        (frame_of(b"\0\x01x\x02\0\x01x\x02", 2), "two parts"),
        (frame_of(b"\0\x02\xff\xfe\x02"), "UTF-8"),
        (frame_of(b"\x63\x01x\x02"), "kind 99"),
        (seal(b"\xb7S\x04\0\0\0\x82\x01\0\x01x\x02" + bytes(4)), "65 parts"),
        (frame_of(b"\x08\x01x\xff\xff\xff\xff\x0f\0"), "too many"),
        (frame_of(b"\x08\x01x" + b"\xff" * 9 + b"\x01" + b"\0"), "too many"),
        (frame_of(b"\x08\x01x" + b"\xff" * 10 + b"\x01"), "does not end"),
        (frame_of(b"\x11\x01x\x0a\x0b\0"), "at most 10"),
        (frame_of(b"\x11\x01x\x0a\x02\0\xff\x03"), "announced"),
        (frame_of(b"\x11\x01x\x0a\x02\0\x03\x40"), "beyond its end"),
        (frame_of(b"\x11\x01x\x0a\x02\x01\x33"), "not sorted"),
        (frame_of(b"\x11\x01x\x0a\x02\x01\xa8"), "not sorted"),
        (frame_of(b"\x11\x01x\x0a\x02\x03\0\0"), "layout"),
        (frame_of(b"\x11\x01x\x0a\x02\x02\x03" + bytes(range(12))), "something else"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        decode(data, ROOMY)


def test_every_truncation_is_refused() -> None:
    for case in cases():
        frame = case.frame.data
        for length in {*range(1, min(len(frame), 60)), len(frame) // 2, len(frame) - 1}:
            for data in (frame[:length], seal(frame[:length]) if length > 11 else b"\xb7"):
                with pytest.raises(WireError):
                    case.read(data, ROOMY)


def test_another_layout_is_noticed() -> None:
    for case in cases():
        if case.layout is not None and case.reference is None:
            data = encode(case.message, case.layout).data
            for other in (None, (1210, 10, 1280, 10), (2510,)):
                with pytest.raises(WireError, match="layout"):
                    decode(data, ROOMY, other)


def test_a_layout_that_is_not_needed_does_no_harm() -> None:
    for case in cases():
        if case.layout is None:
            data = encode(case.message, LAYOUT).data
            assert same(decode(data, ROOMY, LAYOUT), case.message)


def test_the_limit_counts_all_parts_together() -> None:
    vector = np.arange(600, dtype=np.float32)
    data = encode(Message(a=vector, b=vector)).data
    assert len(decode(data, Limit(1200))) == 2
    with pytest.raises(WireError, match="too many"):
        decode(data, Limit(1199))
    with pytest.raises(WireError, match="2 parts"):
        decode(data, Limit(1200, parts=1))


@pytest.mark.parametrize(
    "part",
    [
        np.zeros(500, np.float32),
        np.zeros(500, np.int64),
        Positions(500, np.arange(3)),
        Sparse(500, np.arange(3), np.ones(3, np.float32)),
        Blocks(200, np.arange(3), np.ones(300, np.float32)),
        Ternary((300, 198), np.arange(3), np.ones(3, np.bool_), np.ones(2, np.float32)),
        Levels((300, 198), np.ones(498, np.float32)),
    ],
)
def test_the_limit_counts_every_kind(part: object) -> None:
    data = encode(Message(part=part)).data  # type: ignore[arg-type]
    assert "part" in decode(data, Limit(500))
    with pytest.raises(WireError, match="too many"):
        decode(data, Limit(499))


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Message(x=2**63), "64 bits"),
        (Message(**{"x" * 256: 1}), "at most 255"),
        (Message(**{"\ud800": 1}), "not text"),
        (Message(x=1).stamped(Stamp(round=-1)), "cannot travel"),
        (Message(x=1).stamped(Stamp(acked=(-1, 0))), "cannot travel"),
        (Message(x=Positions(2**31, np.array([5]))), "too long"),
    ],
)
def test_what_cannot_travel_is_refused(message: Message, says: str) -> None:
    with pytest.raises(WireError, match=says):
        encode(message)


def test_arrays_of_any_kind_can_be_sent() -> None:
    """Read-only, not contiguous, at odd addresses, and with their bytes the other way round."""
    odd = np.frombuffer(b"x" + np.arange(500, dtype=np.float32).tobytes(), np.float32, offset=1)
    fixed = np.arange(0, 500, 7)
    fixed.flags.writeable = False
    message = Message(odd=odd, part=Sparse(500, fixed, odd[fixed]), every=np.arange(100, dtype=np.int32)[::3])
    assert same(decode(encode(message).data, ROOMY), message)
    for kind, numbers in ((">i4", [1, 2, -3]), (">f2", [1.5, -2]), (">f4", [0.1, 1e-40]), (">i8", [2**60, -5])):
        found = decode(encode(Message(v=np.array(numbers, kind))).data, ROOMY).parts["v"]
        assert isinstance(found, np.ndarray)
        assert found.dtype.isnative
        assert np.array_equal(found, np.array(numbers, kind))


def test_what_was_decoded_can_be_changed() -> None:
    """Arrays are the receiver's own, not views of the frame."""
    for case in cases():
        for part in case.read(case.frame.data).parts.values():
            arrays = [part] if isinstance(part, np.ndarray) else list(getattr(part, "__dict__", {}).values())
            assert all(a.flags.writeable for a in arrays if isinstance(a, np.ndarray)), case.name


def test_a_memo_gives_the_same_bytes_and_encodes_once() -> None:
    weights = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    indices, memo = np.arange(0, 1000, 3), EncodeCache()

    def frames(memo: EncodeCache | None) -> list[Frame]:
        messages = [Message(weights=weights, mask=Positions(1000, indices), client=client) for client in range(20)]
        return [encode(m.stamped(Stamp(round=i)), None, memo) for i, m in enumerate(messages)]

    plain = frames(None)
    with patch("sparsona.wire.frame.kinds.encode", wraps=kinds.encode) as coder:
        assert frames(memo) == plain
    assert coder.call_count == 2 + 20  # the weights, the mask, and 20 numbers
    assert plain[0].data != plain[1].data


def test_a_memo_tells_layouts_and_arrays_apart() -> None:
    memo, indices = EncodeCache(), np.arange(0, 2510, 5)
    one, two = Message(p=Positions(2510, indices)), Message(p=Positions(2510, indices + 1))
    for message in (one, two, one):
        for layout in (None, LAYOUT):
            assert encode(message, layout, memo) == encode(message, layout)


def test_a_memo_goes_by_content_to_the_bit_and_stays_small() -> None:
    memo, shared = EncodeCache(), np.arange(50, dtype=np.float32)
    with patch("sparsona.wire.frame.kinds.encode", wraps=kinds.encode) as coder:
        for i in range(200):
            own = np.full(50, i, np.float32)
            assert encode(Message(shared=shared.copy(), own=own), None, memo).data
    assert coder.call_count == 1 + 200, "equal arrays are one, whoever made them"
    assert len(memo._kept) == EncodeCache.KEPT
    zeros = [encode(Message(v=np.array([zero, 1] * 20, np.float32)), None, memo) for zero in (0.0, -0.0)]
    assert zeros[0].data != zeros[1].data


def test_what_came_before_is_not_decoded_again() -> None:
    cache, limit = DecodeCache(), Limit(elements=100)
    first, again, other = (
        decode(encode(Message(w=np.full(9, value, np.float32)).stamped(Stamp(round))).data, limit, cache=cache)
        for round, value in ((3, 0.5), (4, 0.5), (4, 0.25))
    )
    assert again.vector("w") is first.vector("w")
    assert (first.round, again.round) == (3, 4)
    assert other.vector("w").tolist() == [0.25] * 9
    with pytest.raises(ValueError, match="read-only"):
        first.vector("w")[0] = 1.0


def test_what_was_never_seen_is_not_known() -> None:
    with pytest.raises(WireError, match="ends in the number of parts"):
        decode(seal(b"\xb7S\x04\xac\x02\0\0" + bytes(4)), ROOMY, cache=DecodeCache())


def test_plain_packing_takes_no_more_than_the_numbers_and_a_bitmap() -> None:
    noise = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    message = Message(update=Sparse(8000, np.arange(0, 8000, 8), noise))
    ledger = encode(message, packing="plain").ledger
    assert (ledger.positions, ledger.values) == (1 + 1000, 1 + 4000)
    assert encode(message).ledger.total < ledger.total


def test_nothing_is_unpickled() -> None:
    """No module of the wire reaches for pickle."""
    wire = [module for name, module in sys.modules.items() if name.startswith("sparsona.wire")]
    assert not any(hasattr(module, "pickle") for module in wire)


def test_a_frame_is_read_from_its_pieces_and_from_the_whole_alike() -> None:
    frame = encode(Message(w=np.arange(5, dtype=np.float32), n=3))
    for data in (frame.pieces, frame.data, memoryview(frame.data)):
        assert decode(data, Limit(10)).vector("w").tolist() == [0, 1, 2, 3, 4]


def test_pieces_that_are_cut_elsewhere_are_refused() -> None:
    whole = encode(Message(n=3)).data
    with pytest.raises(WireError, match="not cut where its parts begin"):
        decode((whole[:-5], whole[-5:-4], whole[-4:]), Limit(10))
