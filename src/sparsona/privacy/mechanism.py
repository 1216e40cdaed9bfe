"""The mechanism of one client, and the meter that counts, samples and noises the queries of a turn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from sparsona.chance import Chance
from sparsona.errors import SparsonaError
from sparsona.message import Vector
from sparsona.privacy import PrivacySettings
from sparsona.privacy.accountant import epsilon_of, noise_for

Doubles = npt.NDArray[np.float64]


class BudgetSpent(SparsonaError):
    """A turn would take more queries than the client's budget has left."""


@dataclass(frozen=True)
class Mechanism:
    """One client's mechanism in one run, fixed before its first query, and the most queries that it may answer.

    `use` is the number of queries of one use of its model, such as its export.
    """

    clip: float
    noise: float
    rate: float
    delta: float
    most: int
    use: int = 0

    @classmethod
    def planned(cls, settings: PrivacySettings, examples: int, batch: int, queries: int, use: int = 0) -> Mechanism:
        """Return the mechanism that keeps to the settings over `queries` queries about `examples` training rows."""
        rate, delta = min(1.0, batch / max(examples, 1)), settings.delta
        noise = settings.noise
        if noise is None:
            assert settings.epsilon is not None
            noise = noise_for(settings.epsilon, delta, rate, max(queries, 1))
        return cls(settings.clip, noise, rate, delta, queries, use)

    def epsilon(self, queries: int) -> float:
        """The epsilon after `queries` queries."""
        return epsilon_of(self.rate, self.noise, queries, self.delta)


@dataclass(frozen=True)
class Query:
    """One query: the rows that it samples, how their gradients are clipped, and its noise.

    `expected` is the expected number of rows: sums are divided by it, since the real number is secret.
    """

    sampled: npt.NDArray[np.int64]
    clip: float
    expected: float
    noise: Callable[[int], Vector]


class Meter:
    """The queries of one client's turn. `used` counts all of the client's queries in this run, this turn's included.

    `charge` gets the new number before a query is answered. Each query has random numbers of its own, derived from its
    number, which is never used twice.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        chance: Chance,
        client: str,
        examples: int,
        used: int = 0,
        charge: Callable[[int], None] = lambda used: None,
    ) -> None:
        self.mechanism, self.used = mechanism, used
        self._chance, self._client, self._examples, self._charge = chance, client, examples, charge

    def ask(self, queries: int = 1) -> Iterator[Query]:
        """Charge `queries` queries now and return them; raises `BudgetSpent` before any if they are too many."""
        first, after = self.used, self.used + queries
        if after > self.mechanism.most:
            raise BudgetSpent(
                f"the privacy budget of {self._client} is spent: {first} of {self.mechanism.most} queries are used, "
                f"and {queries} more are asked for"
            )
        self._charge(after)
        self.used = after
        return (self._query(number) for number in range(first, after))

    def _query(self, number: int) -> Query:
        source = _source(self._chance, self._client, number)
        sampled = np.flatnonzero(source.random(self._examples) < self.mechanism.rate)
        size = self.mechanism.noise * self.mechanism.clip

        def noise(length: int) -> Vector:
            return np.float32(size) * source.standard_normal(length, np.float32)

        return Query(sampled, self.mechanism.clip, self.mechanism.rate * self._examples, noise)


class _Source(Protocol):
    def random(self, size: int) -> Doubles: ...

    def standard_normal(self, size: int, dtype: type[np.float32]) -> Vector: ...


def _source(chance: Chance, client: str, number: int) -> _Source:
    """The random numbers of one query: from the run's seed, or, with an owner's secret, cryptographic ones."""
    if not chance.secret:
        return chance.rng("privacy", client=client, layer=number)
    name = f"privacy/{chance.seed}/{client}/{number}".encode()
    return SecretSource(hashlib.blake2b(name, key=chance.secret).digest())


class SecretSource:
    """Random numbers that reveal nothing about each other without the key: SHAKE256 of the key."""

    def __init__(self, key: bytes) -> None:
        self._key, self._asked = key, 0

    def random(self, size: int) -> Doubles:
        """Uniform numbers from 0 to 1, both excluded."""
        self._asked += 1
        drawn = hashlib.shake_256(self._key + self._asked.to_bytes(8, "little")).digest(8 * size)
        found: Doubles = ((np.frombuffer(drawn, "<u8") >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return found

    def standard_normal(self, size: int, dtype: type[np.float32] = np.float32) -> Vector:
        """Normal numbers of mean 0 and deviation 1."""
        found: Vector = ndtri(self.random(size)).astype(dtype)
        return found
