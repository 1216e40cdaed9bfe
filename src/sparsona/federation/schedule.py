"""The schedule: which clients take part in a round, fail or answer late, and how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal, Protocol

from pydantic import Field

from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.federation.clock import Fleet, Timing, fleet
from sparsona.method import ClientId
from sparsona.options import option
from sparsona.registry import suggest
from sparsona.words import counted

Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Plan:
    """One round: the invited clients, and the fate of each turn.

    A `crashed` client receives its downlink, stops before it trains and remembers nothing. A `lost` client trains, but
    its reply does not arrive. A reply with a `delay` arrives that many rounds later. `timing` decides when all others
    arrive, once their length is known; without it they arrive at once.
    """

    invited: tuple[ClientId, ...]
    crashed: frozenset[ClientId] = frozenset()
    lost: frozenset[ClientId] = frozenset()
    delay: Mapping[ClientId, int] = field(default_factory=dict)
    timing: Timing | None = None


class Schedule(Protocol):
    """Plans rounds; `idle` are the clients without a reply on its way."""

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        """Return the plan of one round."""


@dataclass(frozen=True)
class Sampled:
    """A random share of the clients per round, of which some fail or are late.

    >>> Sampled(sample=0.5).plan(0, ["a", "b", "c", "d"], Chance(0)).invited
    ('a', 'c')
    """

    sample: float = option(1.0, "share of the clients that is sampled in a round", gt=0, le=1)
    dropout: float = option(0.0, "probability that a client fails before it trains", ge=0, le=1)
    loss: float = option(0.0, "probability that a reply is lost after training", ge=0, le=1)
    availability: Fraction | dict[str, Fraction] = option(
        1.0, "probability that a client can be reached, for all clients or by name"
    )
    stragglers: Count | dict[str, Count] = option(
        0, "number of slow clients, the m-th of which misses m rounds after each of its own; or missed rounds by name"
    )
    straggling: Literal["late", "absent"] = option(
        "late", "a slow client replies in the last round that it misses (late), or at once and is then absent"
    )
    devices: str = option(
        "phone-4g", "simulated devices and links: phone-4g, phone-wifi, hospital, sensor, several with +, or a CSV file"
    )
    deadline: float | None = option(
        None, "simulated seconds per round after which replies are lost (not given: wait for the slowest client)", gt=0
    )
    window: float | None = option(
        None, "simulated seconds after which the server aggregates what has arrived (not given: one round)", gt=0
    )

    def among(self, clients: Sequence[ClientId]) -> Sampled:
        """Return the schedule for these clients, with names checked and stragglers drawn."""
        for setting in ("availability", "stragglers"):
            by_name = getattr(self, setting)
            for name in by_name if isinstance(by_name, dict) else ():
                if name not in clients:
                    raise InputError(f"schedule.{setting} names an unknown client {name!r}{suggest(name, clients)}")
        if self.deadline is not None and self.window is not None:
            raise InputError("schedule.deadline and schedule.window exclude each other: drop one of them")
        for client in clients:
            self._fleet.check(client)
        if isinstance(self.stragglers, dict) or not self.stragglers:
            return self
        if self.stragglers > len(clients):
            raise InputError(f"schedule.stragglers={self.stragglers} of {counted(len(clients), 'client')}: lower it")
        late = sorted(clients)[: self.stragglers]
        return replace(self, stragglers={client: m for m, client in enumerate(late, 1)})

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        """Return the plan of one round, drawn from this round's own chance."""

        def happens(what: str, client: ClientId, probability: float) -> bool:
            return bool(chance.rng(f"schedule/{what}", round=round, client=client).random() < probability)

        late = self.stragglers if isinstance(self.stragglers, dict) else {}
        if self.stragglers and not late:
            raise InputError("a schedule with a number of stragglers must know the clients: call among(clients) first")
        names = sorted(idle)
        if self.straggling == "absent":
            names, late = [k for k in names if round % (late.get(k, 0) + 1) == 0], {}
        wanted = max(1, int(self.sample * len(names) + 0.5)) if names else 0
        timing = Timing(self._fleet, chance, self.deadline, self.window)
        if self.availability != 1.0 or not timing.fleet.always_there:
            reach = {k: self._reach(k) * timing.fleet.availability(k, chance) for k in names}
            names = [k for k in names if reach[k] == 1.0 or happens("availability", k, reach[k])]
        if wanted < len(names):
            chosen = chance.rng("schedule/sample", round=round).choice(len(names), wanted, replace=False)
            names = [names[i] for i in sorted(chosen)]
        crashed = frozenset(k for k in names if self.dropout and happens("dropout", k, self.dropout))
        lost = frozenset(k for k in names if self.loss and k not in crashed and happens("loss", k, self.loss))
        delay = {k: late[k] for k in names if late.get(k)}
        return Plan(tuple(names), crashed, lost, delay, timing)

    @cached_property
    def _fleet(self) -> Fleet:
        """Return the devices; a table is read once per run."""
        return fleet(self.devices)

    def _reach(self, client: ClientId) -> float:
        return self.availability.get(client, 1.0) if isinstance(self.availability, dict) else self.availability


EVERYONE = Sampled()
"""All clients in every round, none of which fails."""
