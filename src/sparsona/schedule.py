"""Who takes part in a round, who fails, and whose reply comes late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from pydantic import Field

from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.method import ClientId
from sparsona.registry import suggest

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Plan:
    """One round. `crashed` clients get their downlink and nothing more is heard of them: they remember nothing of it.
    `lost` ones train, but their reply does not arrive. A reply with a `delay` arrives that many rounds later."""

    invited: tuple[ClientId, ...]
    crashed: frozenset[ClientId] = frozenset()
    lost: frozenset[ClientId] = frozenset()
    delay: Mapping[ClientId, int] = field(default_factory=dict)


class Schedule(Protocol):
    """Plans a round; `idle` are the clients whose last reply is not still under way."""

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan: ...


@dataclass(frozen=True)
class Sampled:
    """A random share of the clients each round, some of whom fail.

    `availability` is the chance that a client can be reached at all, for everyone or by name; `dropout` the chance
    that an invited client dies before it trains, `loss` that its reply is lost after it has trained.

    >>> Sampled(sample=0.5).plan(0, ["a", "b", "c", "d"], Chance(0)).invited
    ('a', 'c')
    """

    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    dropout: Share = 0.0
    loss: Share = 0.0
    availability: Share | dict[str, Share] = 1.0

    def check(self, clients: Sequence[ClientId]) -> None:
        if isinstance(self.availability, dict):
            for name in self.availability:
                if name not in clients:
                    raise InputError(f"schedule.availability names an unknown client {name!r}{suggest(name, clients)}")

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        def happens(what: str, client: ClientId, probability: float) -> bool:
            return bool(chance.rng(f"schedule/{what}", round=round, client=client).random() < probability)

        names = sorted(idle)
        wanted = max(1, int(self.sample * len(names) + 0.5)) if names else 0
        if self.availability != 1.0:
            rates = self.availability
            names = [
                k for k in names if happens("availability", k, rates.get(k, 1.0) if isinstance(rates, dict) else rates)
            ]
        if wanted < len(names):
            chosen = chance.rng("schedule/sample", round=round).choice(len(names), wanted, replace=False)
            names = [names[i] for i in sorted(chosen)]
        crashed = frozenset(k for k in names if self.dropout and happens("dropout", k, self.dropout))
        lost = frozenset(k for k in names if self.loss and k not in crashed and happens("loss", k, self.loss))
        return Plan(tuple(names), crashed, lost)
