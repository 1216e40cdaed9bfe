"""Numbers of runs, and by how much two rows differ, with an interval over the seeds.

Runs of one row differ in their seed only. Two rows are compared seed by seed, over the seeds that both have: the mean
of the differences and its 95 % interval by Student's t. One or two seeds do not show how much seeds differ. Their
interval is that of their test samples, widened by the spread of other rows with several seeds (`_noise.py`); the note
says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any, TypeAlias

from sparsona.report.statistics import half_width

Summary: TypeAlias = Mapping[str, Any]
"""The content of a run's summary.json, or the kept part of it."""

Runs: TypeAlias = Mapping[str, Mapping[int, Summary]]
"""The finished runs: by row, and within a row by seed."""

TABLE, SAMPLED, UNTUNED, NOISE = "table", "sampled", "untuned", "noise"
"""What is known of a run beside its numbers: the table it stands in, whether only some clients are asked in a round,
whether its rate was not chosen on validation samples, and what seeds add to a difference, a `Noise` by evaluation point
and reading."""

ENOUGH = 3
"""Number of seeds from which on their own spread is used."""

Reading: TypeAlias = Callable[[Summary, str], float | None]
"""A number of a run at an evaluation point; None where it was not measured."""


@dataclass(frozen=True)
class Difference:
    """A number and its interval. Without an interval both ends are infinite."""

    value: float
    low: float
    high: float
    seeds: int
    noise: float = 0.0
    """The standard deviation that seeds add to that of the test samples, if known from other rows."""
    untuned: bool = False
    """Whether a rate was not chosen on validation samples."""
    degrees: float = math.inf
    """The degrees of freedom of the interval."""

    def high_of(self, rivals: int) -> float:
        """Return the upper end for the lowest of `count` differences, with Bonferroni's correction.

        >>> gap = interval([0.1, 0.2, 0.3])
        >>> gap.high_of(1) == gap.high, round(gap.high_of(5), 3)
        (True, 0.773)
        """
        from scipy.stats import t

        if rivals == 1 or math.isinf(self.high):
            return self.high
        wider = float(t.ppf(1 - 0.025 / rivals, self.degrees) / t.ppf(0.975, self.degrees))
        return self.value + wider * (self.high - self.value)

    def __str__(self) -> str:
        return self._told() + (", untuned" if self.untuned else "")

    def _told(self) -> str:
        if math.isinf(self.low):
            told = f"{self.seeds} seeds" if self.seeds > 1 else "one seed"
            return f"{self.value:+.4f}, {told}" + (" of sampled clients" if math.isinf(self.noise) else "")
        half = f"{self.value:+.4f} ± {self.high - self.value:.4f}"
        told = f"{self.seeds} seeds" if self.seeds > 1 else "test samples of one seed"
        return f"{half}, {told}" + (" and what seeds differ by" if self.noise > 0 else "")


@dataclass(frozen=True)
class Noise:
    """The variance that seeds add to the difference of two rows, and the degrees of freedom behind it."""

    variance: float = 0.0
    degrees: float = 0.0


def score(summary: Summary, point: str) -> float | None:
    """The mean over the clients at an evaluation point, None where it was not measured."""
    return _scores(summary, point).get("mean")


def by_size(summary: Summary, point: str) -> float | None:
    """The mean over the clients, weighted by their test samples."""
    return _scores(summary, point).get("weighted")


def bottom(summary: Summary, point: str) -> float | None:
    """The bottom decile of the clients."""
    return _scores(summary, point).get("bottom_decile")


def newcomers(summary: Summary, point: str) -> float | None:
    """The mean over the clients that joined at the end."""
    return _scores(summary.get("new_clients") or {}, point, summary["metric"]).get("mean")


def lag(summary: Summary, point: str) -> float | None:
    """Return the mean lead of the other clients over those that joined at the end."""
    known, new = score(summary, point), newcomers(summary, point)
    return None if known is None or new is None else known - new


@dataclass(frozen=True)
class Extra:
    """A number that the paper's own code has read from the run; `shares`: it is a share of the test samples."""

    name: str
    shares: bool = False

    def __call__(self, summary: Summary, point: str) -> float | None:
        found = (summary.get("extra") or {}).get(self.name)
        return None if found is None else float(found)


def extra(name: str) -> Reading:
    """A number that the paper's own code has read off the run."""
    return Extra(name)


def accuracy(name: str) -> Reading:
    """An accuracy over all test samples that the paper's own code has read off the run."""
    return Extra(name, shares=True)


def _scores(summary: Summary, point: str, metric: str = "") -> Mapping[str, float | None]:
    found: Mapping[str, float | None] = (summary.get(metric or summary.get("metric", "")) or {}).get(point) or {}
    return found


def values(runs: Runs, row: str, point: str = "pre", of: Reading = score) -> dict[int, float]:
    """The numbers of a row by seed."""
    found = {seed: of(summary, point) for seed, summary in runs.get(row, {}).items()}
    return {seed: value for seed, value in sorted(found.items()) if value is not None}


def first_seeds(runs: Runs, *rows: str) -> list[Summary] | None:
    """The run of each row's first seed, for counts that do not depend on it; None where a row is missing.

    >>> first_seeds({"a": {2: {"flops": 7}, 1: {"flops": 5}}}, "a"), first_seeds({}, "a")
    ([{'flops': 5}], None)
    """
    found = [runs.get(row) for row in rows]
    return [own[min(own)] for own in found if own] if all(found) else None


def interval(found: Iterable[float]) -> Difference:
    """The mean of several numbers with its 95 % interval by Student's t.

    >>> interval([0.1, 0.2, 0.3])
    Difference(value=0.2, low=-0.0484..., high=0.4484..., seeds=3, noise=0.0, untuned=False, degrees=2)
    """
    numbers = list(found)
    middle = round(mean(numbers), 12)
    if len(numbers) < 2:
        return Difference(middle, -math.inf, math.inf, 1)
    half = half_width(numbers)
    return Difference(middle, middle - half, middle + half, len(numbers), degrees=len(numbers) - 1)


@dataclass(frozen=True)
class RowAt:
    """A row at an evaluation point, with the way to read its number."""

    row: str
    point: str = "pre"
    of: Reading = score


def difference(runs: Runs, one: RowAt, other: RowAt) -> Difference | None:
    """Return the lead of `one` over `other`; None without a common seed.

    From three seeds on, their own spread gives the interval. With one or two, the variance is that of the test samples
    plus the seeds' variance in other rows, or that of the two seeds if larger. Without other rows, two seeds use their
    own spread, but at least that of their test samples.
    """
    a, b = values(runs, one.row, one.point, one.of), values(runs, other.row, other.point, other.of)
    both = sorted(a.keys() & b.keys())
    if not both:
        return None
    gaps = [a[seed] - b[seed] for seed in both]
    untuned = any(runs[at.row][seed].get(UNTUNED) for at in (one, other) for seed in both)
    alone = replace(interval(gaps), untuned=untuned)
    if len(both) >= ENOUGH:
        return alone
    noise = max((noise_of(runs[at.row][seed], at) for at in (one, other) for seed in both), key=lambda n: n.variance)
    if math.isinf(noise.variance):
        return replace(alone, low=-math.inf, high=math.inf, noise=math.inf)
    samples = [runs[one.row][seed].get("test_samples") or 0 for seed in both]
    shares = all(_shares(at.of) for at in (one, other)) and all(0 <= own[seed] <= 1 for own in (a, b) for seed in both)
    if not all(samples) or not shares:
        return alone
    sampling = mean(variance(a[seed], b[seed], count) for seed, count in zip(both, samples, strict=True))
    spread = max(sampling + noise.variance, stdev(gaps) ** 2 if len(both) > 1 else 0.0)
    half = quantile(noise) * math.sqrt(spread / len(both))
    if len(both) > 1 and not noise.degrees and half < alone.high - alone.value:
        return alone
    wide = replace(alone, low=alone.value - half, high=alone.value + half)
    return replace(wide, noise=math.sqrt(noise.variance), degrees=noise.degrees or math.inf)


def _shares(of: Reading) -> bool:
    """True if a reading is a share of all test samples; other readings depend on fewer samples."""
    return of in (score, by_size) or (isinstance(of, Extra) and of.shares)


def noise_of(run: Summary, at: RowAt) -> Noise:
    """Return the noise that seeds add to a difference under this reading; for an unknown reading that of the mean."""
    known: Mapping[tuple[str, Reading], Noise] = run.get(NOISE, {})
    return known.get((at.point, at.of), known.get((at.point, score), Noise()))


def quantile(noise: Noise) -> float:
    """Return the half width of a 95 % interval in standard deviations: Student's t if the noise of seeds is known from
    few rows.

    >>> round(quantile(Noise()), 2), round(quantile(Noise(1e-4, 4)), 2), round(quantile(Noise(0.0, 4)), 2)
    (1.96, 2.78, 2.78)
    """
    from scipy.stats import t

    return float(t.ppf(0.975, noise.degrees or math.inf))


def variance(one: float, other: float, samples: int) -> float:
    """Return the variance of the difference of two shares of `samples` independent samples."""
    return (one * (1 - one) + other * (1 - other)) / samples
