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

from sparsona.reproduce._verdicts import SAMPLED, TABLE, WIDENED, Runs, Summary, deviation, values

EVERY = ""
POINTS = ("pre", "post")


def widened(parts: Sequence[Runs]) -> list[Runs]:
    """The runs of a paper's sizes, each with the factor by which the interval of a single seed is widened.

    It is the ratio of two standard deviations, of a difference between two rows over their seeds and over their test
    samples: root of the mean square over pairs of rows of one table that have two seeds or more in common, and at least
    1. A run's own table gives it, or all tables where its own has fewer than three such pairs. Runs that ask some of
    their clients in a round have factors of their own, infinite where no such pair is known: who is asked last may
    decide more than the method.

    >>> def run(mean): return {"metric": "accuracy", "accuracy": {"pre": {"mean": mean}}, "test_samples": 5000}
    >>> rows = {"a": {1: run(0.5), 2: run(0.7)}, "b": {1: run(0.5), 2: run(0.5)}}
    >>> [(seed, round(one[WIDENED]["pre"], 1)) for seed, one in widened([rows])[0]["a"].items()]
    [(1, 14.4), (2, 14.4)]
    """
    ratios: dict[tuple[str, str, bool], list[float]] = {}
    for runs in parts:
        for one, other in combinations(runs, 2):
            for point in POINTS:
                found = _ratio(runs, one, other, point)
                if found is not None:
                    table, sampled = _place(runs[one], runs[other])
                    for tables in (table, EVERY):
                        ratios.setdefault((point, tables, sampled), []).append(found)
    factors = {key: max(1.0, math.sqrt(mean(found))) for key, found in ratios.items() if len(found) > 2 or not key[1]}

    def of(run: Summary, point: str) -> float:
        table, sampled = _place({0: run})
        usual = factors.get((point, EVERY, sampled), math.inf if sampled else 1.0)
        return factors.get((point, table, sampled), usual)

    def told(run: Summary) -> Summary:
        by_point = {point: of(run, point) for point in POINTS}
        return {**run, WIDENED: {**by_point, "ft": by_point["post"]}}  # both come after local training

    return [{row: {seed: told(run) for seed, run in own.items()} for row, own in runs.items()} for runs in parts]


def _place(*rows: Mapping[int, Summary]) -> tuple[str, bool]:
    """The table of some rows, and whether one of them asks some of its clients in a round."""
    runs = [run for own in rows for run in own.values()]
    return str(runs[0].get(TABLE, EVERY)), any(run.get(SAMPLED) for run in runs)


def _ratio(runs: Runs, one: str, other: str, point: str) -> float | None:
    """The variance of the difference of two rows over their seeds, in units of that over their test samples; None where
    they are of two tables, or have fewer than two seeds in common."""
    if len({run.get(TABLE) for row in (one, other) for run in runs[row].values()}) > 1:
        return None
    a, b = (values(runs, row, point) for row in (one, other))
    both = sorted(a.keys() & b.keys())
    samples = [runs[one][seed].get("test_samples") or 0 for seed in both]
    if len(both) < 2 or not all(samples) or not all(0 <= x <= 1 for own in (a, b) for x in own.values()):
        return None
    expected = mean(deviation(a[seed], b[seed], count) ** 2 for seed, count in zip(both, samples, strict=True))
    return stdev(a[seed] - b[seed] for seed in both) ** 2 / expected if expected > 0 else None
