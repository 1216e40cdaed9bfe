"""Count the bytes of a frame by their use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ledger:
    """Bytes by kind. They add up to the length of the frame, so sums over frames are sums of what travelled.

    `bound` is the entropy bound of the positions, in bytes: the average length of the best coder that knows only the
    number of positions (in the vector, or in each tensor, whichever is smaller).

    `against` counts the bytes of parts that were coded against a reference, and `against_plain` the bytes that
    these parts take in plain packing: 4 bytes per float32, a bitmap or a list of positions.

    >>> (Ledger(header=20, values=400) + Ledger(header=20, positions=59, bound=58.6)).total
    499
    """

    header: int = 0
    positions: int = 0
    values: int = 0
    bound: float = 0.0
    against: int = 0
    against_plain: int = 0

    @property
    def total(self) -> int:
        """Return the length of the frames."""
        return self.header + self.positions + self.values

    @classmethod
    def sum(cls, ledgers: Iterable[Ledger], header: int = 0) -> Ledger:
        """Return the sum of many ledgers plus `header` bytes of header: faster than one by one.

        >>> Ledger.sum([Ledger(header=1), Ledger(values=4), Ledger(header=2)])
        Ledger(header=3, positions=0, values=4, bound=0.0, against=0, against_plain=0)
        """
        positions = values = against = against_plain = 0
        bound = 0.0
        for one in ledgers:
            header += one.header
            positions += one.positions
            values += one.values
            bound += one.bound
            against += one.against
            against_plain += one.against_plain
        return cls(header, positions, values, bound, against, against_plain)

    def __add__(self, other: Ledger) -> Ledger:
        if not other.total:
            return self
        return Ledger(
            self.header + other.header,
            self.positions + other.positions,
            self.values + other.values,
            self.bound + other.bound,
            self.against + other.against,
            self.against_plain + other.against_plain,
        )
