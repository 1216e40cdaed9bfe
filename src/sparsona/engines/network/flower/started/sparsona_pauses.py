"""Growing pauses between two requests. This file may import only the standard library."""

from __future__ import annotations

GROWTH = 1.3


class Backoff:
    """Seconds to wait before the next request: short after an answer, then longer each time."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = min(shortest, longest), longest
        self._next = self._shortest

    def next(self) -> float:
        now, self._next = self._next, min(self._longest, GROWTH * self._next)
        return now

    def restart(self) -> None:
        self._next = self._shortest
