"""Parts against a reference: lossless, never longer, and never against the wrong one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_cases import bell, dice, same, same_part, scattered, seal
from wire_strategies import anything, index_sets, tensor_sizes, vectors

from sparsona.errors import MissingReference, WireError
from sparsona.message import Message, Part, Positions, Sparse, Stamp
from sparsona.wire import DecodeCache, EncodeCache, Limit, Reference, Tensors, decode, encode, kinds

ROOMY = Limit(elements=10**6)


def holding(*references: Reference) -> Callable[[bytes], Reference | None]:
    return {r.fingerprint: r for r in references}.get


def step(weights: npt.NDArray[np.float32], seed: int, size: float = 2**-9) -> npt.NDArray[np.float32]:
    return weights + bell(len(weights), seed) * np.float32(size)


def check(message: Message, reference: Reference, layout: Tensors | None = None) -> int:
    """Back to the bit, and not longer than alone; how many bytes."""
    frame, alone = encode(message, layout, reference=reference), encode(message, layout)
    assert frame.ledger.total == len(frame.data) <= len(alone.data)
    assert frame.ledger.against <= frame.ledger.total
    assert (frame.ledger.against > 0) == (frame != alone)
    back = decode(frame.data, Limit(100_000), layout, references=holding(reference))
    assert same(back, message)
    assert encode(message, layout, EncodeCache(), reference=reference) == frame
    assert encode(message, layout, packing="plain", reference=reference) == encode(message, layout, packing="plain")
    return len(frame.data)


WEIGHTS = bell(3000, 1)
BEFORE = Reference.of({"w": WEIGHTS, "mask": Positions(3000, scattered(3000, 4, 2)), "n": np.arange(40)})


def test_a_small_step_saves_a_third() -> None:
    message = Message(w=step(WEIGHTS, 3))
    assert check(message, BEFORE) < 0.7 * len(encode(message).data)


def test_the_ledger_tells_what_was_coded_against_a_reference() -> None:
    frame = encode(Message(w=step(WEIGHTS, 3), examples=3), reference=BEFORE)
    assert frame.ledger.against == frame.ledger.values - 1
    assert frame.ledger.against_plain == 4 * 3000
    assert encode(Message(w=step(WEIGHTS, 3))).ledger.against == 0


def test_what_is_the_same_takes_a_byte() -> None:
    empty = len(encode(Message()).data)
    assert check(Message(w=WEIGHTS.copy()), BEFORE) == empty + 8 + 3 + 1
    mask = Positions(3000, scattered(3000, 4, 2))
    assert check(Message(mask=mask), BEFORE) == empty + 8 + 6 + 1


def test_what_has_nothing_to_do_with_the_reference_is_coded_alone() -> None:
    noise = dice(3000, 4).view(np.float32)
    for part in (noise, bell(2999, 3), WEIGHTS.astype(np.float16), np.zeros(3000, np.float32)):
        message = Message(w=part)
        assert encode(message, reference=BEFORE) == encode(message)


def test_a_mask_costs_what_changed() -> None:
    """At the entropy of so many removals among the old positions, and so many additions among the others."""
    rng = np.random.default_rng(0)
    old = Positions.of(rng.random(100_000) < 0.3)
    mask = old.mask()
    gone, new = rng.choice(old.indices, 600, replace=False), rng.choice(np.flatnonzero(~mask), 600, replace=False)
    mask[gone], mask[new] = False, True

    def entropy(n: int, k: int) -> float:
        return float(-k * np.log2(k / n) - (n - k) * np.log2(1 - k / n))

    length = check(Message(mask=Positions.of(mask)), Reference.of({"mask": old}))
    bound = (entropy(len(old.indices), 600) + entropy(100_000 - len(old.indices), 600)) / 8
    assert length < 1.02 * bound + 40
    assert length < 0.2 * len(encode(Message(mask=Positions.of(mask))).data)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64", "float16"])
def test_other_numbers(kind: str) -> None:
    old = (dice(500, 5) >> 16).astype(kind)
    new = old + (dice(500, 6) % 3).astype(kind)
    length = check(Message(n=new), Reference.of({"n": old}))
    assert length < (0.5 if kind.endswith("32") else 1) * len(encode(Message(n=new)).data) + 1


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_vector_against_any_vector(data: st.DataObject) -> None:
    base = data.draw(vectors())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    match data.draw(st.sampled_from(["near", "some", "other", "bits", "turned"])):
        case "near":
            with np.errstate(all="ignore"):
                part = base + base[::-1] * np.float32(2.0**-8)
        case "some":
            part = np.where(rng.random(len(base)) < 0.1, -base, base)
        case "bits":
            part = (base.view(np.uint32) ^ (np.uint32(1) << rng.integers(0, 32, len(base), np.uint32))).view(np.float32)
        case "turned":
            part = -base
        case _:
            part = data.draw(vectors(len(base)))
    check(Message(v=part), Reference.of({"v": base}))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), layout=tensor_sizes(), known=st.booleans())
def test_any_set_against_any_set(data: st.DataObject, layout: Tensors, known: bool) -> None:
    size = sum(layout)
    old, new = (Positions(size, data.draw(index_sets(size))) for _ in range(2))
    check(Message(p=new), Reference.of({"p": old}), layout if known else None)


@settings(max_examples=100, deadline=None)
@given(part=anything(), base=anything())
def test_any_part_against_any_part(part: Part, base: Part) -> None:
    check(Message(p=part, q=1), Reference.of({"p": base, "q": 1}))


def test_fingerprints_go_by_content_and_name_order_does_not_count() -> None:
    one, two = np.arange(3, dtype=np.float32), Positions(5, np.array([1]))
    assert Reference.of({"a": one, "b": two}).fingerprint == Reference.of({"b": two, "a": one.copy()}).fingerprint
    others: list[dict[str, Part]] = [
        {"a": one},
        {"a": two, "b": one},
        {"a": one.astype(np.float16), "b": two},
        {"a": one, "b": Positions(6, np.array([1]))},
        {"a": -one, "b": two},
        {"a": one, "b": two, "c": 1},
        {"a": one, "b": two, "c": 1.0},
        {"a": np.array([-0.0, 1, 2], np.float32), "b": two},
    ]
    prints = {Reference.of(parts).fingerprint for parts in others} | {Reference.of({"a": one, "b": two}).fingerprint}
    assert len(prints) == len(others) + 1
    assert all(len(p) == 8 for p in prints)


DATA = encode(Message(w=step(WEIGHTS, 3), x=1), reference=BEFORE).data


def test_a_missing_reference_is_named() -> None:
    for lookup in (None, holding(), holding(Reference.of({"w": step(WEIGHTS, 3)}))):
        with pytest.raises(MissingReference, match=BEFORE.fingerprint.hex()) as caught:
            decode(DATA, ROOMY, references=lookup)
        assert caught.value.fingerprint == BEFORE.fingerprint
        assert "\n" not in str(caught.value)
    again = copy.copy(caught.value)  # as between processes
    assert (again.fingerprint, str(again)) == (BEFORE.fingerprint, str(caught.value))


def test_another_reference_is_refused_however_it_is_found() -> None:
    other = Reference.of({"w": step(WEIGHTS, 9)})
    with pytest.raises(WireError, match="was found for it"):
        decode(DATA, ROOMY, references=lambda _: other)


@pytest.mark.parametrize(
    "parts",
    [
        {"v": WEIGHTS},
        {"w": 3},
        {"w": WEIGHTS.astype(np.float16)},
        {"w": WEIGHTS[:2999]},
        {"w": WEIGHTS[:10]},
        {"w": np.zeros(0, np.float32)},
        {"w": Positions(3000, np.arange(5))},
        {"w": Sparse(3000, np.arange(5), np.ones(5, np.float32))},
        {"w": step(WEIGHTS, 4, 1.0)},
        {},
    ],
)
def test_other_parts_under_the_right_fingerprint_are_noticed(parts: dict[str, Part]) -> None:
    """Nobody makes such a reference by accident. It is an error all the same, and no crash."""
    with pytest.raises(WireError) as caught:
        decode(DATA, ROOMY, references=lambda _: Reference(parts, BEFORE.fingerprint))
    assert "\n" not in str(caught.value)


def test_a_frame_cannot_refer_to_itself() -> None:
    """The fingerprint of its own content: nobody holds that before the frame is decoded."""
    own = Reference.of({"w": step(WEIGHTS, 3), "x": 1})
    at = DATA.index(BEFORE.fingerprint)
    circular = seal(DATA[:at] + own.fingerprint + DATA[at + 8 :])
    with pytest.raises(MissingReference):
        decode(circular, ROOMY, references=holding(BEFORE))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\x03" + BEFORE.fingerprint + b"\0\x01x\x02", "no part is coded against"),
        (b"\x01" + BEFORE.fingerprint, "no part is coded against"),
        (b"\x03" + BEFORE.fingerprint[:5], "ends in the fingerprint"),
        (b"\x02\x48\x01w\0", "against nothing"),
        (b"\x03" + BEFORE.fingerprint + b"\x48\x01z\0", "against nothing"),
        (b"\x03" + BEFORE.fingerprint + b"\x51\x01w\0", "against a ndarray"),
        (b"\x03" + BEFORE.fingerprint + b"\x49\x01w\0", "against a ndarray"),
        (b"\x03" + BEFORE.fingerprint + b"\x48\x01w\x03", "way 3"),
        (b"\x03" + BEFORE.fingerprint + b"\x48\x01w\x01\x05", "2..5 contexts"),
        (b"\x03" + BEFORE.fingerprint + b"\x48\x01w\x01\x02\x05\x04\x06", "not in order"),
        (b"\x03" + BEFORE.fingerprint + b"\x50\x01w\0", "kind 80"),
        (b"\x03" + BEFORE.fingerprint + b"\x40\x01w\0", "kind 64"),
        (b"\x03" + BEFORE.fingerprint + b"\xc8\x01w\0", "kind 200"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        decode(seal(b"\xb7S\x04\0\0\0" + body + bytes(4)), ROOMY, references=holding(BEFORE))


def test_the_limit_counts_what_comes_from_the_reference() -> None:
    data = encode(Message(w=WEIGHTS, x=1), reference=BEFORE).data
    assert len(decode(data, Limit(3001), references=holding(BEFORE))) == 2
    with pytest.raises(WireError, match="too many"):
        decode(data, Limit(2999), references=holding(BEFORE))


def test_a_broadcast_against_one_reference_is_encoded_once() -> None:
    cache, new = EncodeCache(), step(WEIGHTS, 3)
    copies = [Reference.of({"w": WEIGHTS.copy()}) for _ in range(3)]
    other = Reference.of({"w": step(WEIGHTS, 8)})
    with patch("sparsona.wire.frame.kinds.encode", wraps=kinds.encode) as coder:
        frames = [encode(Message(w=new.copy()), None, cache, reference=r) for r in copies]
        assert coder.call_count == 1
        apart = encode(Message(w=new), None, cache, reference=other)
        alone = encode(Message(w=new), None, cache)
        assert coder.call_count == 3
    assert len({f.data for f in frames}) == 1
    assert apart == encode(Message(w=new), reference=other) != frames[0]
    assert alone == encode(Message(w=new))


def test_a_cache_does_not_make_up_for_a_missing_reference() -> None:
    cache, new = DecodeCache(), step(WEIGHTS, 3)
    data = [encode(Message(w=new).stamped(Stamp(i)), reference=BEFORE).data for i in range(3)]
    first, again = (decode(d, ROOMY, cache=cache, references=holding(BEFORE)) for d in data[:2])
    assert again.vector("w") is first.vector("w")
    with pytest.raises(MissingReference):
        decode(data[2], ROOMY, cache=cache, references=holding())


def test_a_cache_tells_references_apart() -> None:
    """The same bytes against another reference are other parts."""
    cache, twins = DecodeCache(), [Reference.of({"w": WEIGHTS + np.float32(i)}) for i in range(2)]
    for twin in twins:
        data = encode(Message(w=twin.parts["w"]), reference=twin).data
        assert same_part(decode(data, ROOMY, cache=cache, references=holding(twin)).parts["w"], twin.parts["w"])


def test_what_was_decoded_is_not_the_reference() -> None:
    data = encode(Message(w=WEIGHTS), reference=BEFORE).data
    vector = decode(data, ROOMY, references=holding(BEFORE)).vector("w")
    vector[:] = 0
    assert WEIGHTS.any()
