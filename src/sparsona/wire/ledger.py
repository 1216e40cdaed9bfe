"""Where the bytes of a frame went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ledger:
    """Bytes by kind. They add up to the length of the frame, so sums over frames are sums of what travelled.

    `bound` is the entropy bound of the positions, in bytes: what no coder that knows only how many
    positions there are (in the vector, or in each tensor, whichever is smaller) can beat on average.

    `against` is how many of the bytes belong to parts that were coded against a reference, and `against_plain` what
    these parts take in plain packing: 4 bytes a float32, a bitmap or a list of positions.

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
        """The length of the frames."""
        return self.header + self.positions + self.values

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(
            self.header + other.header,
            self.positions + other.positions,
            self.values + other.values,
            self.bound + other.bound,
            self.against + other.against,
            self.against_plain + other.against_plain,
        )
