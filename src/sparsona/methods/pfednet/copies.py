"""The same vectors on both sides, kept alike by differences, though replies are lost.

Both sides add the same float32 step to the same float32 numbers, so the copies stay equal to the bit. The server steps
on from what the client is known to have: that which it had when it sent the last reply that arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.message import Levels, Message, Part, Vector
from sparsona.methods.pfednet.kmeans import few_values

Table = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Copy:
    """The shared x and the client's own z."""

    x: Vector
    z: Vector


@dataclass(frozen=True, eq=False)
class Copies:
    """What a client was last sent, and what it had when the server last heard of it; `round` is its last reply's."""

    base: Copy
    came: Copy
    round: int = -1

    def received(self, down: Message) -> Copies:
        """After a downlink: whole vectors `x` and `z`, or the steps `x_step` and `z_step` from what it had."""
        had = self.came if self.round <= down.acked else self.base
        return Copies(had, Copy(_moved(had.x, "x", down), _moved(had.z, "z", down)), self.round)


@dataclass(frozen=True, eq=False)
class Originals:
    """The server's side: x, a row of z for each client, and the last steps of both.

    The steps led here at the end of `round`; the state before them was in force after `since`. `heard` is the last
    round in which a client, as far as is known, had the state of its time. Before the first step everybody has it.
    """

    x: Vector
    z: Table
    x_step: Levels
    z_step: Table
    heard: dict[str, int]
    round: int = -1
    since: int = -1

    @classmethod
    def of(cls, first: Copy) -> Originals:
        """Nobody's row yet."""
        none = np.zeros((0, len(first.z)), np.float32)
        return cls(first.x, none, Levels((len(first.x),), 0 * first.x), none, {})

    @property
    def still(self) -> bool:
        """Whether nothing has moved yet."""
        return self.round < 0

    def parts(self, to: str, row: int | None) -> dict[str, Part]:
        """What brings a client up to date: steps, or whole vectors. Without a row it gets the mean of all."""
        if self.still:
            return {}
        out: dict[str, Part]
        if row is not None and self.heard.get(to, -1) > self.since:
            out = {"x_step": self.x_step, "z_step": Levels((self.z.shape[1],), self.z_step[row])}
        else:
            out = {"x": self.x, "z": self.z[row] if row is not None else self.z.mean(0)}
        return out if len(self.x) else {name: part for name, part in out.items() if name[0] == "z"}

    def stepped(self, x_step: Vector, z_step: Table, round: int) -> Originals:
        """The next state. `z` may have got new rows since the last one."""
        steps = Levels((len(x_step),), x_step)
        return Originals(self.x + x_step, self.z + z_step, steps, z_step, self.heard, round, self.round)


def _moved(old: Vector, name: str, down: Message) -> Vector:
    if name in down:
        return down.vector(name, len(old))
    step = f"{name}_step"
    return old + levels_of(down, step, len(old)) if step in down else old


def levels_of(message: Message, name: str, size: int) -> Vector:
    """The values of a part of levels, which must be `size` in number."""
    values = message.levels(name).values
    if len(values) != size:
        raise WireError(f"{name!r} has {len(values)} entries, expected {size}")
    return values


def step_of(old: Vector, move: Vector, few: bool) -> Vector:
    """The step that both sides add to `old`, about `move` and short to write: `move` itself if it has few values,
    else the difference to where it leads, whose last bits are zeros.

    >>> float(step_of(np.float32([8]), np.float32([1e-3]), False)[0]).hex(), float(np.float32(1e-3)).hex()
    ('0x1.0640000000000p-10', '0x1.0624de0000000p-10')
    """
    out: Vector = move if few and few_values(move) else (old + move) - old
    return out
