"""The checks of FedPSE's claims that are not row against row: means over several pairs, d over lambda, bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sparsona.reproduce import Runs
from sparsona.reproduce._verdicts import (
    ENOUGH,
    At,
    Check,
    Difference,
    Verdict,
    Word,
    difference,
    extra,
    fact,
    first_seeds,
    interval,
    values,
)
from sparsona.reproduce.fedpse.plan import LAMBDAS, row_of

Pair = tuple[str, str]
"""Two rows: the second is taken off the first."""


def each(*checks: Check) -> Check:
    """Whether all of several hold: "no" where one does not, "not run" where one was not run. The first such one is
    told of."""
    order: tuple[Word, ...] = ("no", "not run", "within noise", "yes")

    def check(runs: Runs) -> Verdict:
        return min((one(runs) for one in checks), key=lambda found: order.index(found.word))

    return check


def mean_above(pairs: Sequence[Pair], point: str = "pre") -> Check:
    """Whether the mean over pairs of rows of the first one's lead is above 0."""

    def check(runs: Runs) -> Verdict:
        return _judged(runs, _mean_difference(runs, pairs, point), pairs)

    return check


def grows(groups: Sequence[Sequence[Pair]], point: str = "pre") -> Check:
    """Whether the mean lead of each group of pairs is above that of the group before it."""

    def step(before: Sequence[Pair], after: Sequence[Pair]) -> Check:
        def check(runs: Runs) -> Verdict:
            low, high = (_mean_difference(runs, pairs, point) for pairs in (before, after))
            gap = None
            if low is not None and high is not None:
                half = math.hypot(low.high - low.value, high.high - high.value)
                value = high.value - low.value
                gap = Difference(value, value - half, value + half, min(low.seeds, high.seeds))
            return _judged(runs, gap, (*before, *after))

        return check

    return each(*(step(before, after) for before, after in pairwise(groups)))


def _judged(runs: Runs, gap: Difference | None, pairs: Sequence[Pair]) -> Verdict:
    if gap is None:
        absent = [row for row in dict.fromkeys(row for pair in pairs for row in pair) if not runs.get(row)]
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        return Verdict("not run", f"missing: {', '.join(absent[:3])}{more}" if absent else "no seed in common")
    return Verdict("yes" if gap.low > 0 else "no" if gap.high <= 0 else "within noise", str(gap))


def _mean_difference(runs: Runs, pairs: Sequence[Pair], point: str) -> Difference | None:
    """The mean over the pairs with its interval: over the seeds that all of them have, if these are enough, else as if
    pairs were independent of each other. None where they have no seed in common."""
    found = [[values(runs, row, point) for row in pair] for pair in pairs]
    seeds = sorted(set.intersection(*(set(own) for pair in found for own in pair)))
    if len(seeds) >= ENOUGH:
        return interval(sum(one[seed] - other[seed] for one, other in found) / len(pairs) for seed in seeds)
    if not seeds:
        return None
    only = {row: {seed: runs[row][seed] for seed in seeds} for pair in pairs for row in pair}
    gaps = [difference(only, At(one, point), At(other, point)) for one, other in pairs]
    known = [gap for gap in gaps if gap is not None]
    value = sum(gap.value for gap in known) / len(known)
    half = math.hypot(*(gap.high - gap.value for gap in known)) / len(known)
    return Difference(value, value - half, value + half, len(seeds), max(gap.noise for gap in known))


def rising(clients: int, name: str, data: str = "fashion-mnist") -> Check:
    """Whether the mean (`distance`) or the variance (`distance_variance`) over the clients rises with lambda.

    Both ends of each step are samples of so many clients, of all seeds: a mean has their standard error, a variance the
    quantiles of F. It rises if every step does, and does not if one step falls.
    """
    from scipy.stats import f

    def steps(runs: Runs) -> Iterator[tuple[float, float, float, int]]:
        """Lambda, the mean and the variance of d, and the variance's degrees of freedom."""
        for ratio in LAMBDAS:
            row = row_of(ratio, "fedpse", clients, data)
            mean, variance = (values(runs, row, "pre", extra(key)) for key in ("distance", "distance_variance"))
            if mean:
                count = len(mean)
                yield ratio, sum(mean.values()) / count, sum(variance.values()) / count, count * (clients - 1)

    def check(runs: Runs) -> Verdict:
        found = list(steps(runs))
        if len(found) < len(LAMBDAS):
            known = {ratio for ratio, *_ in found}
            return Verdict("not run", f"missing: lambda = {', '.join(f'{r:g}' for r in LAMBDAS if r not in known)}")
        words: list[Word] = []
        for (_, m0, v0, n0), (_, m1, v1, n1) in pairwise(found):
            if name == "distance":
                half = 1.96 * math.sqrt(v0 / n0 + v1 / n1)
                low, high = m1 - m0 - half, m1 - m0 + half
            else:
                low, high = math.log(v1 / v0 / f.ppf(0.975, n1, n0)), math.log(v1 / v0 * f.ppf(0.975, n0, n1))
            words.append("yes" if low > 0 else "no" if high < 0 else "within noise")
        word: Word = "no" if "no" in words else "within noise" if "within noise" in words else "yes"
        shown = [(ratio, mean if name == "distance" else variance) for ratio, mean, variance, _ in found]
        told = ", ".join(f"{ratio:g}: {value:.3g}" for ratio, value in shown)
        return Verdict(word, f"{told}; from step to step: {', then '.join(words)}")

    return check


def sent(method: str, way: str, low: float, high: float) -> Check:
    """Whether a row sends between `low` and `high` of FedAvg's numbers, at lambda = 1 with ten clients."""
    rows = row_of(1.0, method), row_of(1.0, "fedavg")

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, *rows)
        if pair is None:
            return None
        one, other = (run["paper_bytes"][way] for run in pair)
        return low <= one / other <= high, f"{one / other:.4f}"

    return fact(test, *rows)


def cheaper(rival: str) -> Check:
    """Whether FedPSE sends fewer bytes than a rival, up and down together, at lambda = 1 with ten clients."""
    rows = row_of(1.0, "fedpse"), row_of(1.0, rival)

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, *rows)
        if pair is None:
            return None
        mine, other = (run["bytes"]["up"] + run["bytes"]["down"] for run in pair)
        return mine < other, f"{mine / other:.3f} of the bytes"

    return fact(test, *rows)
