"""How far one seed may be off: what rows with several seeds tell of those with one.

A difference between two rows of one seed has the interval of its test samples, as if nothing else were left to chance.
That is enough for most tables, and far too sure for some: with two of ten clients in a round, three seeds of FedPSE and
its rivals spread sixteen times as wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import mean, stdev

from sparsona.reproduce._verdicts import NOISE, SAMPLED, TABLE, Runs, Summary, values, variance

EVERY = ""
POINTS = ("pre", "post")


def with_noise(parts: Sequence[Runs]) -> list[Runs]:
    """The runs of a paper's sizes, each with what seeds add to the variance of a difference, by evaluation point.

    It is the variance of the difference between two rows over their seeds, less that over their test samples: the mean
    over pairs of rows of one table that have two seeds or more in common, and at least 0. A run's own table gives it if
    it has three such pairs, else all tables together; without three pairs it is taken for 0. Runs that ask some of
    their clients in a round have numbers of their own, infinite where there are no three pairs: who is asked last may
    decide more than the method. It is read off the plain means over clients, and used for every reading.

    >>> def run(mean): return {"metric": "accuracy", "accuracy": {"pre": {"mean": mean}}, "test_samples": 5000}
    >>> rows = {name: {1: run(0.5), 2: run(0.5 + more)} for name, more in (("a", 0.0), ("b", 0.2), ("c", 0.1))}
    >>> round(with_noise([rows])[0]["a"][1][NOISE]["pre"], 4)
    0.0099
    """
    found: dict[tuple[str, str, bool], list[float]] = {}
    for runs in parts:
        for one, other in combinations(runs, 2):
            for point in POINTS:
                more = _excess(runs, one, other, point)
                if more is not None:
                    table, sampled = _place(runs[one], runs[other])
                    for tables in {table, EVERY}:
                        found.setdefault((point, tables, sampled), []).append(more)
    known = {key: max(0.0, mean(pairs)) for key, pairs in found.items() if len(pairs) > 2}

    def of(run: Summary, point: str) -> float:
        table, sampled = _place({0: run})
        usual = known.get((point, EVERY, sampled), math.inf if sampled else 0.0)
        return known.get((point, table, sampled), usual)

    def told(run: Summary) -> Summary:
        by_point = {point: of(run, point) for point in POINTS}
        return {**run, NOISE: {**by_point, "ft": by_point["post"]}}  # both come after local training

    return [{row: {seed: told(run) for seed, run in own.items()} for row, own in runs.items()} for runs in parts]


def _place(*rows: Mapping[int, Summary]) -> tuple[str, bool]:
    """The table of some rows, and whether one of them asks some of its clients in a round."""
    runs = [run for own in rows for run in own.values()]
    return str(runs[0].get(TABLE, EVERY)), any(run.get(SAMPLED) for run in runs)


def _excess(runs: Runs, one: str, other: str, point: str) -> float | None:
    """The variance of the difference of two rows over their seeds, less that over their test samples; None where they
    are of two tables, or have fewer than two seeds in common."""
    if len({run.get(TABLE) for row in (one, other) for run in runs[row].values()}) > 1:
        return None
    a, b = (values(runs, row, point) for row in (one, other))
    both = sorted(a.keys() & b.keys())
    samples = [runs[one][seed].get("test_samples") or 0 for seed in both]
    if len(both) < 2 or not all(samples) or not all(0 <= x <= 1 for own in (a, b) for x in own.values()):
        return None
    expected = mean(variance(a[seed], b[seed], count) for seed, count in zip(both, samples, strict=True))
    return stdev(a[seed] - b[seed] for seed in both) ** 2 - expected
