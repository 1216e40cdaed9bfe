"""Messages that this process has encoded, for a decoder in the same process.

The coder is lossless, so decoding a frame of one's own gives what the encoder had. That is not taken on trust: the
first such frame and then every hundredth are decoded all the same, and compared.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xxhash

from sparsona.errors import RunError
from sparsona.message import Message, Part, Positions, Sparse
from sparsona.wire.frame import Limit
from sparsona.wire.references import made_of, same, same_objects

EVERY = 100  # of this many frames one is decoded and compared

BUDGET = 32 * 2**20  # bytes of messages that are remembered; the oldest are forgotten beyond it


class KnownFrames:
    """Return the encoded message of a frame that this process has made, instead of decoding the frame.

    The frames are made and counted as ever. A copy of a message is remembered until its frame is decoded once. Messages
    of other kinds of parts than numbers, vectors, sparse vectors and positions are not remembered, nor those that a
    decoder would refuse as too large.
    """

    def __init__(self, limit: Limit, every: int = EVERY, budget: int = BUDGET) -> None:
        self._limit, self._every, self._budget = limit, every, budget
        self._kept: dict[bytes, tuple[Message, int]] = {}
        self._bytes = self._taken = 0
        self._last: tuple[Mapping[str, Part], dict[str, Part]] | None = None
        self._broken = False

    def add(self, pieces: tuple[bytes, ...], message: Message, shared: bool) -> None:
        """Remember the message behind a frame; if `shared`, its copy is read-only and serves for equal broadcasts."""
        parts = message.parts
        if len(parts) > self._limit.parts or sum(map(_numbers, parts.values())) > self._limit.elements:
            return
        size, key = sum(map(_bytes, parts.values())), _key(pieces)
        self._bytes += size - self._kept.pop(key, (message, 0))[1]
        self._kept[key] = Message.of(self._copies(parts, shared), message.stamp), size
        while self._bytes > self._budget:
            self._bytes -= self._kept.pop(next(iter(self._kept)))[1]

    def take(self, pieces: tuple[bytes | memoryview, ...], decode: Callable[[], Message]) -> Message:
        """Return the message behind a frame; `decode` returns it if it is not known, or has its turn to be compared."""
        message, size = (None, 0) if self._broken else self._kept.pop(_key(pieces), (None, 0))
        self._bytes -= size
        if message is not None:
            self._taken += 1
            self._broken = (self._taken - 1) % self._every == 0 and not _equal(message, decode())
        if self._broken:
            raise RunError(
                "a decoded frame differs from the encoded message, which is a bug: "
                "run it with --engine pool, which decodes every frame, and report it"
            )
        return decode() if message is None else message

    def _copies(self, parts: Mapping[str, Part], shared: bool) -> dict[str, Part]:
        if shared and self._last is not None and same_objects(parts, self._last[0]):
            return self._last[1]
        copies = {name: _copied(part, not shared) for name, part in parts.items()}
        if shared:
            self._last = parts, copies
        return copies


def _key(pieces: tuple[bytes | memoryview, ...]) -> bytes:
    whole = xxhash.xxh3_128()
    for piece in pieces:
        whole.update(piece)
    return whole.digest()


def _numbers(part: Part) -> float:
    """Return how many numbers a decoder counts for this part; infinitely many for kinds that are not remembered."""
    if isinstance(part, np.ndarray):
        return len(part)
    if isinstance(part, Sparse | Positions):
        return part.size
    return 1 if isinstance(part, int | float) else np.inf


def _bytes(part: Part) -> int:
    return sum(held.nbytes for held in made_of(part).values() if isinstance(held, np.ndarray))


def _copied(part: Part, writeable: bool) -> Part:
    """Return the part with copies of its arrays."""

    def copy(held: Any) -> Any:
        if isinstance(held, np.ndarray):
            held = held.copy()
            held.flags.writeable = writeable
        return held

    if isinstance(part, np.ndarray):
        return copy(part)  # type: ignore[no-any-return]
    if isinstance(part, Sparse):
        return Sparse.of_sorted(part.size, copy(part.indices), copy(part.values))
    return Positions.of_sorted(part.size, copy(part.indices)) if isinstance(part, Positions) else part


def _equal(one: Message, other: Message) -> bool:
    pairs = [(part, other.parts.get(name)) for name, part in one.parts.items()]
    return (
        one.stamp == other.stamp
        and list(one.parts) == list(other.parts)
        and all(found is not None and same(part, found) for part, found in pairs)
    )
