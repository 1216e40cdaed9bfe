"""Checks of pFedGate's claims: several at once, and numbers made of several rows."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

from sparsona_papers._differences import RowAt, Runs, Summary, bottom, interval, score, values
from sparsona_papers._verdicts import Check, Verdict, fact, missing, word_above, word_below
from sparsona_papers.pfedgate.readings import CLIENT


def combined(number: Callable[..., float], *ats: RowAt, least: float | None = None, most: float | None = None) -> Check:
    """Check whether a number made of several rows, seed by seed, is above `least` or at most `most`.

    One seed has no interval and decides nothing.
    """

    def check(runs: Runs) -> Verdict:
        found = [values(runs, at.row, at.point, at.of) for at in ats]
        both = sorted(set.intersection(*(set(own) for own in found)))
        if not both:
            return missing(runs, *(at.row for at in ats))
        told = interval(number(*(own[seed] for own in found)) for seed in both)
        if least is not None:
            return Verdict(word_above(told, least), str(told))
        assert most is not None, "a number is asked for on one side"
        return Verdict(word_below(told, most), str(told))

    return check


def ratio(one: float, other: float) -> float:
    """Return the ratio of two numbers."""
    return one / other


def growth(one: float, before: float, other: float, other_before: float) -> float:
    """Return by how much more the first two differ than the others.

    >>> growth(5, 3, 4, 3)
    1
    """
    return (one - before) - (other - other_before)


def mean_gain(*pairs: float) -> float:
    """Return the mean difference of consecutive numbers.

    >>> mean_gain(5, 3, 4, 4)
    1
    """
    return mean(one - other for one, other in zip(pairs[::2], pairs[1::2], strict=True))


def behind(summary: Summary, point: str) -> float | None:
    """Return the distance of the clients' bottom decile from their mean."""
    all_, last = score(summary, point), bottom(summary, point)
    return None if all_ is None or last is None else all_ - last


def sent(row: str) -> Check:
    """Return whether between 0.6 and 0.75 of the model's numbers go up in a client's turn."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        own = runs.get(row)
        if not own:
            return None
        shares = [
            run["paper_bytes"]["up"] / (4 * run["weights"] * run["clients"] * run["rounds"]) for run in own.values()
        ]
        return 0.6 < min(shares) <= max(shares) < 0.75, ", ".join(f"{share:.3f}" for share in shares)

    return fact(test, row)


def most_gain(one: str, other: str) -> Check:
    """Return whether more than half of the clients have a higher score in the first row, seed by seed."""

    def share(runs: Runs, seed: int) -> float | None:
        a, b = (_each(runs[row][seed]) for row in (one, other))
        both = a.keys() & b.keys()
        return sum(a[client] > b[client] for client in both) / len(both) if both else None

    def check(runs: Runs) -> Verdict:
        seeds = sorted(runs.get(one, {}).keys() & runs.get(other, {}).keys())
        shares = [found for seed in seeds if (found := share(runs, seed)) is not None]
        if not shares:
            return missing(runs, one, other)
        told = interval(shares)
        return Verdict(word_above(told, 0.5), str(told))

    return check


def _each(run: Summary) -> dict[str, float]:
    """Single clients' scores, where they were kept."""
    found = (run.get("extra") or {}).items()
    return {name: float(value) for name, value in found if name.startswith(CLIENT)}
