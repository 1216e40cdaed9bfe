"""What would settle a claim of FedSpa's: the cheapest command, and its hours."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache

from sparsona.reproduce import SIZES, Case, Size
from sparsona.reproduce.fedspa.plan import HOURS, cases

TO_GET = {"emnist:letters": "emnist", "cifar-100": "cifar-100"}
"""The data that are not on every machine, and what `sparsona data get` calls them."""


def price(*rows: str, only: Sequence[str] = (), seeds: int = 1, at_least: Size = "quick", again: bool = False) -> str:
    """The command that makes the rows with at least so many seeds, in the first size that has them, and its hours.

    `only` are patterns of names that hold the rows, for one command instead of several. Sizes before `at_least` are
    too short for the claim. `again` is for rows that are kept without what the claim needs.

    >>> price("fashion-mnist-0.3-random")
    "`sparsona reproduce fedspa --size quick --only 'fashion-mnist-0.3-random*'`: about 0.1 CPU hours"
    """
    patterns = tuple(only) or tuple(f"{row}*" for row in dict.fromkeys(rows))
    size, chosen = next(
        (size, _matching(size, patterns))
        for size in SIZES[SIZES.index(at_least) :]
        if all(sum(case.of == row for case in _matching(size, patterns)) >= seeds for row in rows)
    )
    hours = max(0.1, sum(HOURS[size][case.settings["data"]] for case in chosen))
    words = ["sparsona", "reproduce", "fedspa", "--size", size, "--only", f"'{patterns[0]}'", *["--again"] * again]
    more = "".join(f", then '{pattern}'" for pattern in patterns[1:])
    get = sorted({TO_GET[case.settings["data"]] for case in chosen if case.settings["data"] in TO_GET})
    after = ", after " + " and ".join(f"`sparsona data get {name}`" for name in get) if get else ""
    return f"`{' '.join(words)}`{more}: about {_rounded(hours)} CPU hours{after}"


@cache
def _planned(size: Size) -> tuple[Case, ...]:
    return tuple(cases(size))


def _matching(size: Size, patterns: Sequence[str]) -> list[Case]:
    return [case for case in _planned(size) if any(fnmatchcase(case.name, pattern) for pattern in patterns)]


def _rounded(hours: float) -> str:
    """
    >>> _rounded(0.25), _rounded(4.2), _rounded(1560)
    ('0.2', '4', '1,600')
    """
    return f"{hours:.1f}" if hours < 3 else f"{float(f'{hours:.2g}'):,.0f}"
