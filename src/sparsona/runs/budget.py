"""The budget of a run: bytes and simulated seconds."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """The limits of a run: MB of all clients together, up and down, and simulated seconds.

    >>> Budget(mb=1).spent(bytes=1e6, seconds=0), Budget(seconds=5).spent(bytes=1e9, seconds=4.9)
    (True, False)
    """

    mb: float | None = None
    seconds: float | None = None

    @property
    def bytes(self) -> float:
        """Return the limit of bytes; infinite without a bound."""
        return math.inf if self.mb is None else self.mb * 1e6

    @property
    def clock(self) -> float:
        """Return the limit of simulated seconds; infinite without a bound."""
        return math.inf if self.seconds is None else self.seconds

    def spent(self, bytes: float, seconds: float) -> bool:
        """True if a run that has sent `bytes` and taken `seconds` must end."""
        return bytes >= self.bytes or seconds >= self.clock
