"""Checks that pFedGate's claims need beside the common ones: several at once, and numbers made of several rows."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

from sparsona.reproduce import Runs
from sparsona.reproduce._verdicts import (
    At,
    Check,
    Summary,
    Verdict,
    Word,
    bottom,
    extra,
    fact,
    first_seeds,
    interval,
    score,
    values,
)
from sparsona.reproduce.pfedgate.readings import CLIENT


def all_of(*checks: Check) -> Check:
    """Whether every one of several holds; the one that is furthest from it is told.

    >>> all_of(lambda runs: Verdict("yes", "a"), lambda runs: Verdict("no", "b"))({})
    Verdict(word='no', note='b')
    """
    order: tuple[Word, ...] = ("no", "not run", "within noise", "yes")

    def check(runs: Runs) -> Verdict:
        return min((one(runs) for one in checks), key=lambda found: order.index(found.word))

    return check


def combined(number: Callable[..., float], *ats: At, least: float | None = None, most: float | None = None) -> Check:
    """Whether a number that is made of several rows, seed by seed, is above `least` or at most `most`.

    One seed has no interval, so that nothing follows from it.
    """

    def check(runs: Runs) -> Verdict:
        found = [values(runs, at.row, at.point, at.of) for at in ats]
        both = sorted(set.intersection(*(set(own) for own in found)))
        if not both:
            return fact(lambda runs: None, *(at.row for at in ats))(runs)
        told = interval(number(*(own[seed] for own in found)) for seed in both)
        if least is not None:
            word: Word = "yes" if told.low > least else "no" if told.high <= least else "within noise"
        else:
            assert most is not None, "a number is asked for on one side"
            word = "yes" if told.high <= most else "no" if told.low > most else "within noise"
        return Verdict(word, str(told))

    return check


def ratio(one: float, other: float) -> float:
    """How many times the other it is."""
    return one / other


def growth(one: float, before: float, other: float, other_before: float) -> float:
    """By how much more the first two differ than the others.

    >>> growth(5, 3, 4, 3)
    1
    """
    return (one - before) - (other - other_before)


def mean_gain(*pairs: float) -> float:
    """The mean of the differences of numbers that follow each other.

    >>> mean_gain(5, 3, 4, 4)
    1
    """
    return mean(one - other for one, other in zip(pairs[::2], pairs[1::2], strict=True))


def behind(summary: Summary, point: str) -> float | None:
    """By how much the bottom decile of the clients is below their mean."""
    all_, last = score(summary, point), bottom(summary, point)
    return None if all_ is None or last is None else all_ - last


def operations(one: str, other: str, most: float) -> Check:
    """Whether a row takes at most so much of another's floating-point operations."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        pair = first_seeds(runs, one, other)
        if pair is None:
            return None
        share = ratio(*(run["flops"] for run in pair))
        return share <= most, f"{share:.3f}"

    return fact(test, one, other)


def sent(row: str) -> Check:
    """Whether between 0.6 and 0.75 of the model's numbers go up in a client's turn."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        own = runs.get(row)
        if not own:
            return None
        shares = [
            run["paper_bytes"]["up"] / (4 * run["weights"] * run["clients"] * run["rounds"]) for run in own.values()
        ]
        return 0.6 < min(shares) <= max(shares) < 0.75, ", ".join(f"{share:.3f}" for share in shares)

    return fact(test, row)


def measured(row: str, what: str, most: float, times: float = 1.0) -> Check:
    """Whether a share that `benchmarks/pfedgate.py` has measured, so many `times`, is at most so much. It rounds to
    hundredths."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        found = [extra(what)(run, "") for run in runs.get(row, {}).values()]
        return None if not found or found[0] is None else (times * found[0] <= most, f"{times * found[0]:.2f}")

    return fact(test, row)


def most_gain(one: str, other: str) -> Check:
    """Whether more than half of the clients have a higher score in the first row, seed by seed."""

    def share(runs: Runs, seed: int) -> float | None:
        a, b = (_each(runs[row][seed]) for row in (one, other))
        both = a.keys() & b.keys()
        return sum(a[client] > b[client] for client in both) / len(both) if both else None

    def check(runs: Runs) -> Verdict:
        seeds = sorted(runs.get(one, {}).keys() & runs.get(other, {}).keys())
        shares = [found for seed in seeds if (found := share(runs, seed)) is not None]
        if not shares:
            return fact(lambda runs: None, one, other)(runs)
        told = interval(shares)
        return Verdict("yes" if told.low > 0.5 else "no" if told.high <= 0.5 else "within noise", str(told))

    return check


def _each(run: Summary) -> dict[str, float]:
    """Single clients' scores, where they were kept."""
    found = (run.get("extra") or {}).items()
    return {name: float(value) for name, value in found if name.startswith(CLIENT)}
