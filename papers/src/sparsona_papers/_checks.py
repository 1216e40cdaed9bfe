"""Checks for claims of several papers: counts, growing leads, benchmarks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

from sparsona_papers._differences import (
    ENOUGH,
    Difference,
    RowAt,
    Runs,
    Summary,
    difference,
    first_seeds,
    interval,
    values,
)
from sparsona_papers._verdicts import Check, Verdict, all_of, fact, missing, word_above, word_below

Count: TypeAlias = Callable[[Summary], float]
"""A number of a run that does not depend on its seed."""

Pair: TypeAlias = tuple[str, str]
"""Two rows: the lead of the first over the second."""


def flops(run: Summary) -> float:
    """The floating-point operations."""
    return float(run["flops"])


def bytes_sent(*ways: str) -> Count:
    """The bytes that were really sent `up`, `down` or both ways together."""
    return lambda run: float(sum(run["bytes"][way] for way in ways))


def numbers_sent(*ways: str) -> Count:
    """Return the bytes sent as papers count them: values only."""
    return lambda run: float(sum(run["paper_bytes"][way] for way in ways))


def share(one: str, other: str, count: Count, most: float, least: float = 0.0) -> Check:
    """Check whether a row has less than `most` of another row's count, and at least `least` of it.

    >>> runs = {"a": {1: {"flops": 3}}, "b": {1: {"flops": 4}}}
    >>> share("a", "b", flops, 1.0)(runs), share("a", "c", flops, 1.0)(runs)
    (Verdict(word='yes', note="0.7500 of the other's"), Verdict(word='not run', note='missing: c'))
    """

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, one, other)
        if pair is None:
            return None
        found = count(pair[0]) / count(pair[1])
        return least <= found < most, f"{found:.4f} of the other's"

    return fact(test, one, other)


def measured(row: str, what: str, most: float, times: float = 1.0) -> Check:
    """Check whether a benchmark's share is at most a bound. Times are lists of measurements, of which one alone decides
    nothing; a number is a count, such as of bytes.
    """

    def check(runs: Runs) -> Verdict:
        found = first_seeds(runs, row)
        told = found[0]["extra"].get(what) if found else None
        if told is None:
            return missing(runs, row)
        if not isinstance(told, list):
            return Verdict("yes" if times * told <= most else "no", f"{times * told:.3f}")
        mean = interval(times * one for one in told)
        if len(told) == 1:
            return Verdict("within noise", f"{mean.value:.3f}, one measurement")
        half = mean.high - mean.value
        return Verdict(word_below(mean, most), f"{mean.value:.3f} ± {half:.3f}, {len(told)} measurements")

    return check


def mean_above(pairs: Sequence[Pair], point: str = "pre") -> Check:
    """Check whether the first rows' mean lead over the second rows of all pairs is above 0."""

    def check(runs: Runs) -> Verdict:
        gap = mean_lead(runs, pairs, point)
        return missing(runs, *_rows(pairs)) if gap is None else Verdict(word_above(gap), str(gap))

    return check


def grows(groups: Sequence[Sequence[Pair]], point: str = "pre") -> Check:
    """Check whether the mean lead grows from group to group of pairs.

    Two groups are over different clients: the square of the half interval is the sum of theirs.
    """

    def step(before: Sequence[Pair], after: Sequence[Pair]) -> Check:
        def check(runs: Runs) -> Verdict:
            low, high = (mean_lead(runs, pairs, point) for pairs in (before, after))
            if low is None or high is None:
                return missing(runs, *_rows(after), *_rows(before))
            half, value = math.hypot(low.high - low.value, high.high - high.value), high.value - low.value
            seeds, noise = min(low.seeds, high.seeds), max(low.noise, high.noise)
            gap = Difference(value, value - half, value + half, seeds, noise)
            return Verdict(word_above(gap), f"{gap}: leads of {high.value:+.4f} and {low.value:+.4f}")

        return check

    return all_of(step(before, after) for before, after in pairwise(groups))


def mean_lead(runs: Runs, pairs: Sequence[Pair], point: str) -> Difference | None:
    """Return the mean lead with its interval, over the seeds that all pairs have. If these are too few, pairs count as
    independent. None without a common seed.
    """
    found = [[values(runs, row, point) for row in pair] for pair in pairs]
    seeds = sorted(set.intersection(*(set(own) for pair in found for own in pair)))
    if len(seeds) >= ENOUGH:
        return interval(sum(one[seed] - other[seed] for one, other in found) / len(pairs) for seed in seeds)
    if not seeds:
        return None
    only = {row: {seed: runs[row][seed] for seed in seeds} for row in _rows(pairs)}
    gaps = [difference(only, RowAt(one, point), RowAt(other, point)) for one, other in pairs]
    known = [gap for gap in gaps if gap is not None]
    value = sum(gap.value for gap in known) / len(known)
    half = math.hypot(*(gap.high - gap.value for gap in known)) / len(known)
    return Difference(value, value - half, value + half, len(seeds), max(gap.noise for gap in known))


def _rows(pairs: Sequence[Pair]) -> list[str]:
    return [row for pair in pairs for row in pair]
