"""A process need not decode what it has encoded; every hundredth frame is decoded and compared."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona.errors import RunError
from sparsona.message import Levels, Message, Part, Positions, Sparse, Stamp
from sparsona.wire import Limit, decode, encode
from sparsona.wire.known import EVERY, KnownFrames
from sparsona.wire.references import same

WEIGHTS = np.array([1, -0.0, np.nan, 3], np.float32)
CHANGES = Sparse(6, np.array([1, 4]), np.array([0.5, -2], np.float32))
PARTS: dict[str, Part] = {"weights": WEIGHTS, "changes": CHANGES, "mask": Positions(5, np.array([0, 3])), "n": 7}


def message(**parts: Part) -> Message:
    return Message(**(parts or PARTS)).stamped(Stamp(3, 1, (2, 0)))


class Receiver:
    """Takes frames that this process has made, and counts those that it decodes."""

    def __init__(self, elements: int = 100, every: int = EVERY, budget: int = 2**20) -> None:
        self.known = KnownFrames(Limit(elements), every, budget)
        self.limit, self.decoded, self.damage = Limit(1000), 0, False

    def take(self, data: bytes) -> Message:
        def decoded() -> Message:
            self.decoded += 1
            found = decode(data, self.limit)
            return found.stamped(Stamp(9)) if self.damage else found

        return self.known.take((data,), decoded)

    def send(self, sent: Message, shared: bool = False) -> Message:
        frame = encode(sent)
        self.known.add(frame.pieces, sent, shared)
        return self.take(frame.data)


def test_what_was_encoded_comes_back_without_decoding() -> None:
    receiver = Receiver()
    receiver.send(message())
    assert receiver.decoded == 1  # the first is compared
    found = receiver.send(message())
    assert receiver.decoded == 1
    assert found.stamp == message().stamp
    assert list(found) == list(PARTS)
    assert all(same(part, found.parts[name]) for name, part in PARTS.items())


def test_every_hundredth_frame_is_decoded_and_compared() -> None:
    receiver = Receiver()
    for number in range(2 * EVERY + 1):
        receiver.send(message(weights=np.full(4, number, np.float32)))
    assert (EVERY, receiver.decoded) == (100, 3)


def test_a_difference_ends_the_run_for_good() -> None:
    receiver = Receiver(every=2)
    receiver.send(message())
    receiver.damage = True
    receiver.send(message())  # not compared
    with pytest.raises(RunError, match=r"differs from the encoded message.*--engine pool"):
        receiver.send(message())
    for data in (encode(message()).data, encode(Message()).data):
        with pytest.raises(RunError, match="differs"):
            receiver.take(data)


def test_other_bytes_are_decoded() -> None:
    """A frame that is not of this process, or was changed on its way."""
    receiver = Receiver()
    receiver.send(message())
    receiver.known.add(encode(message()).pieces, message(), shared=False)
    other = encode(message(weights=WEIGHTS + 1)).data
    assert receiver.take(other).vector("weights")[0] == 2
    assert receiver.decoded == 2


def test_the_copy_does_not_follow_the_encoders_arrays() -> None:
    receiver = Receiver()
    receiver.send(message())
    own = np.ones(4, np.float32)
    frame = encode(message(weights=own))
    receiver.known.add(frame.pieces, message(weights=own), shared=False)
    own += 1
    found = receiver.take(frame.data).vector("weights")
    assert found.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("shared", [True, False])
def test_broadcasts_are_read_only_and_replies_are_not_as_when_they_are_decoded(shared: bool) -> None:
    receiver = Receiver()
    receiver.send(message())
    vector = receiver.send(message(), shared).vector("weights")
    sparse, mask = (receiver.send(message(), shared).parts[name] for name in ("changes", "mask"))
    assert isinstance(sparse, Sparse)
    assert isinstance(mask, Positions)
    found = vector, sparse.indices, sparse.values, mask.indices
    assert {array.flags.writeable for array in found} == {not shared}
    assert receiver.decoded == 1


def test_a_broadcast_is_copied_once_although_replies_come_between() -> None:
    """A caller that names a reference by its content then does so once."""
    receiver = Receiver()
    down = message()
    receiver.send(down)
    found = []
    for number in range(3):
        found.append(receiver.send(down.stamped(Stamp(number)), shared=True).parts)
        receiver.send(message(weights=np.full(4, number, np.float32)))
    assert found[0] is found[1] is found[2]


@pytest.mark.parametrize(
    "sent",
    [
        message(weights=np.zeros(101, np.float32)),
        message(changes=Sparse(101, np.array([0]), np.ones(1, np.float32))),
        message(mask=Positions(101, np.array([0]))),
        message(**{f"n{number}": number for number in range(101)}),
        message(levels=Levels((2, 2), np.ones(4, np.float32))),
    ],
    ids=["vector", "sparse", "mask", "numbers", "another kind"],
)
def test_what_a_decoder_might_refuse_is_decoded(sent: Message) -> None:
    receiver = Receiver(elements=100)
    receiver.send(message())
    receiver.limit = Limit(1000, parts=200)
    receiver.send(sent)
    assert receiver.decoded == 2


def test_more_parts_than_a_decoder_allows_are_decoded() -> None:
    receiver = Receiver(elements=1000)
    receiver.send(message())
    receiver.limit = Limit(1000, parts=200)
    receiver.send(message(**{f"n{number}": number for number in range(65)}))
    assert receiver.decoded == 2


def test_beyond_the_budget_the_oldest_are_forgotten() -> None:
    receiver = Receiver(budget=16 * 3)
    receiver.send(message(weights=WEIGHTS))
    sent = [message(weights=np.full(4, number, np.float32)) for number in range(4)]
    frames = [encode(one) for one in sent]
    for frame, one in zip(frames, sent, strict=True):
        receiver.known.add(frame.pieces, one, shared=False)
        receiver.known.add(frame.pieces, one, shared=False)  # the same bytes again count once
    for frame in frames:
        receiver.take(frame.data)
    assert receiver.decoded == 2
    receiver.take(frames[-1].data)  # a second reading is decoded
    assert receiver.decoded == 3
