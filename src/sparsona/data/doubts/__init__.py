"""Doubts: values that can be read and are probably wrong. None of them stops a run.

A kind is a function of :class:`Sites` that yields a :class:`Doubt` for each finding. Plug-ins add kinds through the
entry-point group ``sparsona.data.doubts``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sparsona.data.dataset import Array, ClientSplit, Indices
from sparsona.data.schema.roles import Task
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import class_names
from sparsona.registry import Registry
from sparsona.words import counted

__all__ = ["DOUBTS", "Doubt", "Sites", "doubts_of", "listed"]

SAMPLE = 20_000
"""Rows from which quantiles and relations between columns are taken, evenly spaced over a larger table."""

OF_ONE = 2_000
"""Rows of one client from which its quantiles are taken."""

SITES = 500
"""Clients that are compared with each other one by one."""


@dataclass(frozen=True)
class Doubt:
    """One finding: its place, its number of rows, the evidence, why it matters, and the fix."""

    where: str
    column: str
    rows: int
    what: str
    why: str
    fix: str

    @property
    def line(self) -> str:
        """The finding as one line.

        >>> Doubt("east.csv", "age", 3, "-999 repeats", "it moves the mean", "pass --missing -999").line
        "east.csv, column 'age', 3 rows: -999 repeats; it moves the mean; pass --missing -999"
        """
        column = f", column {self.column!r}" if self.column else ""
        return f"{self.where}{column}, {counted(self.rows, 'row')}: {self.what}; {self.why}; {self.fix}"


@dataclass(frozen=True, eq=False)
class Sites:
    """Rows by client. `places` names the file of each client, where it is known. `natural`: the clients came with the
    data, so that a difference between them means something; a partition makes clients as it is asked to.
    """

    rows: Rows
    splits: Mapping[str, ClientSplit]
    task: Task
    places: Mapping[str, str] = field(default_factory=dict)
    by: str = "random"
    natural: bool = True
    name: str = "the data"
    metric: str = ""
    """The metric that decides; empty where it is not known."""

    @cached_property
    def clients(self) -> Mapping[str, Indices]:
        """All rows of each client."""
        return {name: np.concatenate([s.train, s.validation, s.test]) for name, s in self.splits.items()}

    @cached_property
    def compared(self) -> Mapping[str, Indices]:
        """The clients whose rows may be compared: none where a partition has made them."""
        return dict(list(self.clients.items())[:SITES]) if self.natural and len(self.clients) > 1 else {}

    @cached_property
    def judged(self) -> Mapping[str, Indices]:
        """Rows of the clients to be compared, of a large client at most `OF_ONE`, evenly spaced."""
        return {client: mine[:: max(1, -(-len(mine) // OF_ONE))] for client, mine in self.compared.items()}

    @cached_property
    def used(self) -> Indices:
        """The rows of all clients, in their order."""
        return np.sort(np.concatenate(list(self.clients.values())))

    @cached_property
    def site(self) -> Indices:
        """The number of each row's client, -1 for a row that no client has."""
        found = np.full(len(self.rows), -1, np.int64)
        for number, mine in enumerate(self.clients.values()):
            found[mine] = number
        return found

    @cached_property
    def sample(self) -> Indices:
        """At most `SAMPLE` of the rows, evenly spaced."""
        return self.used[:: max(1, -(-len(self.used) // SAMPLE))]

    @cached_property
    def classes(self) -> Array | None:
        """The name of each row's class; None where the target is no class."""
        return class_names(self.rows) if self.task == "classification" else None

    @property
    def target(self) -> str:
        """The name of the (first) target."""
        return self.rows.targets[0]

    def numbers(self) -> Iterator[tuple[str, Array]]:
        """The columns of numbers; a target that is a number is the last."""
        for k, name in enumerate(self.rows.number_names):
            yield name, self.rows.numbers[:, k]
        if self.task == "regression" and self.rows.target.ndim == 2:
            for k, name in enumerate(self.rows.targets):
                yield name, self.rows.target[:, k]

    def codes(self, column: str) -> Array:
        """The values of a feature as float64: numbers as they are, categories by their place in the alphabet."""
        if column not in self.rows.categories:
            return self.rows.numbers[:, self.rows.number_names.index(column)]
        if column not in self._coded:
            held = np.unique(self.rows.categories[column], return_inverse=True)[1]
            self._coded[column] = held.astype(np.float64)
        return self._coded[column]

    @cached_property
    def _coded(self) -> dict[str, Array]:
        return {}

    @cached_property
    def keys(self) -> Array:
        """A 64-bit hash of each row's features: equal rows have equal keys."""
        key = np.zeros(len(self.rows), np.uint64)
        for name in self.rows.order:
            key = mixed(key, self.codes(name))
        return key

    @cached_property
    def alike(self) -> float:
        """Return the probability that two rows agree in all features by chance, if columns are independent."""
        chance = 1.0
        for name in self.rows.order:
            counts = np.unique(self.codes(name)[self.sample], return_counts=True)[1]
            chance *= float(((counts / counts.sum()) ** 2).sum())
        return chance

    def at(self, rows: Indices, column: str, what: str, why: str, fix: str) -> Doubt:
        """A doubt about some rows."""
        return Doubt(self.where(rows), column, len(rows), what, why, fix)

    def of(self, clients: Sequence[str], column: str, what: str, why: str, fix: str) -> Doubt:
        """A doubt about all rows of some clients."""
        rows = sum(len(self.clients[client]) for client in clients)
        return Doubt(self.called(clients), column, rows, what, why, fix)

    def where(self, rows: Indices) -> str:
        """The clients that have these rows, by their files."""
        numbers, names = np.unique(self.site[rows]), list(self.clients)
        return self.called([names[k] for k in numbers.tolist() if k >= 0])

    def called(self, clients: Sequence[str]) -> str:
        """Return the clients' files: the first two, and the number of the others."""
        if not self.natural:
            return self.name
        if len(clients) > 2 and len(clients) == len(self.clients):
            return f"all {len(clients)} clients"
        shown = [self.places.get(name, f"client {name}") for name in clients[:2]]
        return " and ".join(shown) if len(clients) <= 2 else f"{', '.join(shown)} and {len(clients) - 2} more"


def mixed(key: Array, values: Array) -> Array:
    """Return the hash of rows with one more column. It uses wrapping integers, because sums of floats depend on the
    order of rows.
    """
    bits = np.where(np.isnan(values), np.nan, values + 0.0).astype(np.float64).view(np.uint64)
    mixture = (key ^ bits) * np.uint64(0x9E3779B97F4A7C15)
    return mixture ^ (mixture >> np.uint64(29))


DOUBTS: Registry[Callable[[Sites], Iterable[Doubt]]] = Registry("doubt", __name__)
MOST = 12
"""Doubts that are shown one by one; about.json holds all."""


def doubts_of(sites: Sites) -> tuple[Doubt, ...]:
    """Return the findings of all kinds in these rows; none in samples without columns, such as images and text."""
    if sites.rows.block is not None or not sites.clients:
        return ()
    return tuple(doubt for _, find in DOUBTS for doubt in find(sites))


def listed(doubts: Iterable[Doubt | str]) -> list[str]:
    """One line per doubt, and a last line that counts the doubts beyond the first `MOST`."""
    lines = [doubt if isinstance(doubt, str) else doubt.line for doubt in doubts]
    more = [f"{len(lines) - MOST} more doubts; about.json of a run lists all"] if len(lines) > MOST else []
    return lines[:MOST] + more
