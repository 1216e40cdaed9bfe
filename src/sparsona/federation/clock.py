"""Virtual time: the speed of devices and links, the duration of a turn, the end of a round.

No process waits. A turn's seconds follow from the trained samples and from the lengths of the real frames. The presets
are round numbers for a small net; replace them by a CSV file of your own measurements.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path

from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.method import ClientId
from sparsona.registry import suggest


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
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value) or value < 0 or (value == 0 and field.name in ("up", "down")):
                raise InputError(f"a device needs finite, positive numbers: {field.name} is {value:g}")
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
EVERYONE = "*"
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
            raise InputError(f"the table of devices has no row for client {client!r}: add one, or one for {EVERYONE!r}")

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
    everyone = named.pop(EVERYONE, None)
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
