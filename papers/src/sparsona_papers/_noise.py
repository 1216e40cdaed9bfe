"""The noise of seeds, estimated from rows with several seeds for rows with few.

The interval of a difference of one seed covers its test samples only. That is enough for most tables, and far too sure
for some: with two of ten clients in a round, three seeds of FedPSE and its rivals spread sixteen times as wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from statistics import mean, stdev
from typing import Any

from sparsona_papers._differences import (
    NOISE,
    SAMPLED,
    TABLE,
    Noise,
    Reading,
    Runs,
    Summary,
    accuracy,
    by_size,
    score,
    values,
    variance,
)

EVERY = (-1, "")
"""Stands for all sizes and tables."""
POINTS = ("pre", "post")
MEANS: tuple[Reading, ...] = (score, by_size)


@dataclass
class _Pairs:
    """Pairs of rows with several common seeds: the variance of seeds beyond that of test samples, and the number of
    seeds.
    """

    excess: list[float] = field(default_factory=list)
    seeds: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict)
    """The number of seeds that a row has in common with others, by size and table."""

    def noise(self) -> Noise | None:
        """Return their mean, at least 0; None for fewer than three. A table of rows with as many seeds has (rows - 1)
        (seeds - 1) degrees of freedom.
        """
        if len(self.excess) < 3:
            return None
        degrees = sum(sum(n - 1 for n in own.values()) * (len(own) - 1) / len(own) for own in self.seeds.values())
        return Noise(max(0.0, mean(self.excess)), degrees)


def with_noise(parts: Sequence[Runs]) -> list[Runs]:
    """Return the runs of a paper's sizes, each with the noise of seeds by evaluation point and reading.

    It is the variance of the difference between two rows over their seeds, less that over their test samples: the mean
    over pairs of rows of one table that have two seeds or more in common, and at least 0. A run's own table gives it if
    it has three such pairs, else all tables together; without three pairs it is taken for 0. Runs that sample clients
    have numbers of their own, infinite without three pairs: the clients sampled last may matter more than the method. A
    run that stands in several rows of a table counts once.

    >>> def run(mean): return {"metric": "accuracy", "accuracy": {"pre": {"mean": mean}}, "test_samples": 5000}
    >>> rows = {name: {1: run(0.5), 2: run(0.5 + more)} for name, more in (("a", 0.0), ("b", 0.2), ("c", 0.1))}
    >>> found = with_noise([rows])[0]["a"][1][NOISE]["pre", score]
    >>> round(found.variance, 4), found.degrees
    (0.0099, 2.0)
    """
    found: dict[tuple[str, Reading, tuple[int, str], bool], _Pairs] = {}
    readings = _readings(parts)
    for nth, runs in enumerate(parts):
        for one, other in combinations(_once(runs), 2):
            table, sampled = _place(runs[one], runs[other])
            for point, of in product(POINTS, readings):
                more, seeds = _excess(runs, one, other, point, of)
                for place in {(nth, table), EVERY} if seeds else ():
                    pairs = found.setdefault((point, of, place, sampled), _Pairs())
                    pairs.excess.append(more)
                    own = pairs.seeds.setdefault((nth, table), {})
                    own |= {row: max(own.get(row, 0), seeds) for row in (one, other)}
    known = {key: noise for key, pairs in found.items() if (noise := pairs.noise()) is not None}

    def told(run: Summary, nth: int) -> Summary:
        table, sampled = _place({0: run})
        noise = {(point, of): Noise(math.inf if sampled else 0.0) for point, of in product(POINTS, MEANS)}
        for point, of in product(POINTS, readings):
            found = known.get((point, of, (nth, table), sampled)) or known.get((point, of, EVERY, sampled))
            if found is not None:
                noise[point, of] = found
        after = {("ft", of): one for (point, of), one in noise.items() if point == "post"}  # both after local training
        return {**run, NOISE: noise | after}

    return [
        {row: {seed: told(run, nth) for seed, run in own.items()} for row, own in runs.items()}
        for nth, runs in enumerate(parts)
    ]


def _readings(parts: Sequence[Runs]) -> tuple[Reading, ...]:
    """Return the means over the clients, and the shares that the papers' own code has read, taken for accuracies."""
    every = (run for runs in parts for own in runs.values() for run in own.values())
    found = (own for run in every for own in (run.get("extra") or {}).items())
    names = dict.fromkeys(name for name, value in found if isinstance(value, float) and 0 <= value <= 1)
    return (*MEANS, *map(accuracy, names))


def _once(runs: Runs) -> list[str]:
    """Return the rows without duplicates: a duplicate has the scores and operations of another row of its table."""
    kept: list[tuple[str, str, dict[int, Any]]] = []
    for row in sorted(runs, key=lambda row: -len(runs[row])):
        own = {seed: (run["flops"], run[run["metric"]]) for seed, run in runs[row].items() if "flops" in run}
        table, _ = _place(runs[row])
        if not own or not any(table == other and own.items() <= known.items() for _, other, known in kept):
            kept.append((row, table, own))
    return [row for row, _, _ in kept]


def _place(*rows: Mapping[int, Summary]) -> tuple[str, bool]:
    """Return the table of some rows, and whether one of them samples its clients."""
    runs = [run for own in rows for run in own.values()]
    return str(runs[0].get(TABLE, "")), any(run.get(SAMPLED) for run in runs)


def _excess(runs: Runs, one: str, other: str, point: str, of: Reading) -> tuple[float, int]:
    """Return the variance of the difference of two rows over their common seeds, less that over their test samples, and
    the number of seeds. It is 0 seeds for fewer than two, for rows of different tables, or for numbers that are no
    shares of test samples.
    """
    if len({run.get(TABLE) for row in (one, other) for run in runs[row].values()}) > 1:
        return 0.0, 0
    a, b = (values(runs, row, point, of) for row in (one, other))
    both = sorted(a.keys() & b.keys())
    samples = [runs[one][seed].get("test_samples") or 0 for seed in both]
    if len(both) < 2 or not all(samples) or not all(0 <= x <= 1 for own in (a, b) for x in own.values()):
        return 0.0, 0
    expected = mean(variance(a[seed], b[seed], count) for seed, count in zip(both, samples, strict=True))
    return stdev(a[seed] - b[seed] for seed in both) ** 2 - expected, len(both)
