"""The schedule: which clients take part in a round, fail or answer late, and how long it takes.

Time is virtual: no process waits. A turn's seconds follow from the trained samples and from the lengths of the real
frames. The presets are round numbers for a small net; replace them by a CSV file of your own measurements.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field

from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.method import ClientId
from sparsona.options import option
from sparsona.registry import suggest
from sparsona.words import counted


@dataclass(frozen=True)
class Device:
    """A client's speed: seconds per training sample and bits per second each way; `availability` is a probability.

    `spread` makes clients of one kind differ: speed and links are divided by exp(spread * z), with one normal z per
    client.

    >>> Device(0.01, up=8e6, down=8e6).seconds(received=1_000_000, samples=100, sent=2_000_000)
    4.0
    """

    seconds_per_sample: float
    up: float
    down: float
    availability: float = 1.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not math.isfinite(value) or value < 0 or (value == 0 and one.name in ("up", "down")):
                raise InputError(f"a device needs finite, positive numbers: {one.name} is {value:g}")
        if self.availability > 1:
            raise InputError(f"a device's availability is a probability, not {self.availability:g}")

    def seconds(self, received: int, samples: float, sent: int) -> float:
        """Return the time from the first byte of the download to the last byte of the upload."""
        return 8 * received / self.down + samples * self.seconds_per_sample + 8 * sent / self.up

    def of(self, client: ClientId, chance: Chance) -> Device:
        """Return a copy of the device with this client's own speed."""
        if not self.spread:
            return self
        z = chance.rng("schedule/device", client=client).normal(size=3)
        work, up, down = (math.exp(self.spread * float(v)) for v in z)
        return Device(self.seconds_per_sample * work, self.up / up, self.down / down, self.availability)


PRESETS: Mapping[str, Device] = {
    "phone-4g": Device(2e-3, up=8e6, down=24e6, spread=0.5),
    "phone-wifi": Device(2e-3, up=20e6, down=60e6, spread=0.5),
    "hospital": Device(2e-4, up=100e6, down=100e6, spread=0.2),
    "sensor": Device(5e-2, up=50e3, down=100e3, availability=0.9, spread=0.5),
}
ANY = "*"
COLUMNS = ("client", "seconds_per_sample", "up", "down", "availability")


@dataclass(frozen=True)
class Fleet:
    """The devices of a federation: declared per client, or drawn from `kinds`."""

    kinds: tuple[Device, ...]
    named: Mapping[ClientId, Device]

    def device(self, client: ClientId, chance: Chance) -> Device:
        """Return a client's device: declared, or drawn for it."""
        if client in self.named:
            return self.named[client]
        self.check(client)
        return _drawn(self.kinds, client, chance)

    def check(self, client: ClientId) -> None:
        """Refuse a client for which no device is declared."""
        if not self.kinds and client not in self.named:
            raise InputError(f"the table of devices has no row for client {client!r}: add one, or one for {ANY!r}")

    @cached_property
    def always_there(self) -> bool:
        """True if every device can always be reached."""
        return all(device.availability == 1.0 for device in (*self.kinds, *self.named.values()))

    def availability(self, client: ClientId, chance: Chance) -> float:
        """Return the availability of a client's device.

        The device is drawn only if kinds differ in availability, since a round asks this for every registered client.

        >>> fleet("phone-4g").availability("a", Chance(0)), fleet("sensor").availability("a", Chance(0))
        (1.0, 0.9)
        """
        if client not in self.named and self.kinds and len({kind.availability for kind in self.kinds}) == 1:
            return self.kinds[0].availability
        return self.device(client, chance).availability


@lru_cache(maxsize=1 << 16)
def _drawn(kinds: tuple[Device, ...], client: ClientId, chance: Chance) -> Device:
    number = int(chance.rng("schedule/kind", client=client).integers(len(kinds)))
    return kinds[number].of(client, chance)


def fleet(spec: str) -> Fleet:
    """Return the devices that `spec` names: a preset, several joined by `+` and drawn at random, or a CSV file.

    The CSV file is read at each call.

    >>> fleet("hospital+phone-4g").kinds[0].up
    100000000.0
    """
    if spec.endswith(".csv"):
        return _table(Path(spec))
    kinds = []
    for name in spec.split("+"):
        if name not in PRESETS:
            raise InputError(f"unknown device {name!r}{suggest(name, PRESETS)}; or give a .csv file")
        kinds.append(PRESETS[name])
    return Fleet(tuple(kinds), {})


def _table(path: Path) -> Fleet:
    """Read ``client,seconds_per_sample,up,down[,availability]``; the row of client * is for all other clients."""
    try:
        with path.open(newline="", encoding="utf-8") as text:
            reader = csv.DictReader(text)
            header = tuple(reader.fieldnames or ())
            if header not in (COLUMNS, COLUMNS[:-1]):
                raise InputError(f"{path} must begin with the line {','.join(COLUMNS)}; availability may be left out")
            named = {}
            for row in reader:
                try:
                    named[row["client"]] = Device(*(float(row[column]) for column in header[1:]))
                except (TypeError, ValueError, InputError) as error:
                    raise InputError(f"{path}, line {reader.line_num}: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    everyone = named.pop(ANY, None)
    return Fleet((everyone,) if everyone else (), named)


@dataclass(frozen=True)
class Timing:
    """The duration of one round's turns, and when the server stops waiting.

    Without `deadline` and `window` the server waits for the slowest client. At the `deadline` it continues, and missing
    replies are lost. With a `window` each round takes that many seconds, and later replies are late.
    """

    fleet: Fleet
    chance: Chance
    deadline: float | None = None
    window: float | None = None

    def seconds(self, client: ClientId, received: int, samples: float, sent: int) -> float:
        """Return the simulated seconds of a turn: download, training, upload."""
        return self.fleet.device(client, self.chance).seconds(received, samples, sent)

    def misses(self, seconds: float) -> bool:
        """True if a reply that takes `seconds` misses the deadline and is lost."""
        return self.deadline is not None and seconds > self.deadline

    def length(self, awaited: Mapping[ClientId, float], silent: bool, training: bool) -> float:
        """Return the seconds of a phase whose replies take the `awaited` seconds; `silent`: some will never come.

        Only training uses the window; in other phases the server waits for all replies.
        """
        if self.window is not None and training:
            return self.window
        slowest = max(awaited.values(), default=0.0)
        if self.deadline is None:
            return slowest
        return self.deadline if silent else min(slowest, self.deadline)


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


EVERYONE = Sampled()  # all clients in every round, none of which fails
