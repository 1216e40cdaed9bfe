"""The shortest command that makes the rows of a claim, and the data that it needs first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from itertools import takewhile

from sparsona.data import DATASETS
from sparsona_papers._excerpt import source_of
from sparsona_papers._paper import SIZES, Case, Size

TO_GET = ("cifar-100", "emnist", "femnist")
"""The papers' data sets that are not on every machine."""


@dataclass(frozen=True)
class Command:
    """A paper's name and its cases by size, from which commands are made."""

    paper: str
    cases: Callable[[Size], Iterable[Case]]

    def of_rows(
        self, *rows: str, only: Sequence[str] = (), seeds: int = 1, at_least: Size = "quick", again: bool = False
    ) -> str:
        """Return the command that makes the rows with at least `seeds` seeds, in the first size that has them.

        `only` are patterns of names that hold the rows, for a shorter command than one that has a pattern for each.
        Sizes before `at_least` are too short for the claim. `again` is for kept rows that lack a needed number.
        """
        wanted = list(dict.fromkeys(rows))
        for size in SIZES[SIZES.index(at_least) :]:
            names = [[case.name for case in _planned(self.cases, size) if case.of == row] for row in wanted]
            if all(len(own) >= seeds for own in names):
                return self.of_runs(size, *(only or map(pattern_of, names)), again=again)
        raise LookupError(f"no size of {self.paper} has {seeds} seeds of {', '.join(wanted)}")

    def of_runs(self, size: Size, *patterns: str, again: bool = False) -> str:
        """The command that makes the runs of a size whose names match one of the patterns."""
        chosen = self.chosen(size, *patterns)
        first, *others = (f"--only '{pattern}'" for pattern in patterns)
        call = f"`{call_of(self.paper, size)} {first}{' --again' * again}`"
        more = "".join(f", then `{other}`" for other in others)
        return f"{call}{more}{needed_data(chosen)}"

    def chosen(self, size: Size, *patterns: str) -> list[Case]:
        """The cases of a size whose names match one of the patterns."""
        return [case for case in _planned(self.cases, size) if any(fnmatch(case.name, one) for one in patterns)]


@cache
def _planned(cases: Callable[[Size], Iterable[Case]], size: Size) -> tuple[Case, ...]:
    return tuple(cases(size))


def call_of(paper: str, size: Size) -> str:
    """Return the command for a size of a paper.

    >>> call_of("plga", "whole"), call_of("plga", "day")
    ('sparsona reproduce plga', 'sparsona reproduce plga --size day')
    """
    return f"sparsona reproduce {paper}{'' if size == 'whole' else f' --size {size}'}"


def pattern_of(names: Sequence[str]) -> str:
    """Return a pattern for the names of a row's runs; it matches no others if each name ends in a digit.

    >>> pattern_of(["a-1", "a-2"]), pattern_of(["a", "a-2"]), pattern_of(["a-3"])
    ('a-[12]', 'a*', 'a-3')
    """
    start = beginning_of(names)
    ends = [name.removeprefix(start) for name in names]
    if len(names) == 1:
        return names[0]
    return f"{start}[{''.join(ends)}]" if all(len(end) == 1 for end in ends) else f"{start}*"


def beginning_of(texts: Sequence[str]) -> str:
    """Return the common beginning of several texts.

    >>> beginning_of(["mnist-iid-spfl", "mnist-iid-spfl-w", "mnist-iid-spfl-1"])
    'mnist-iid-spfl'
    """
    return "".join(first for first, *_ in takewhile(lambda found: len(set(found)) == 1, zip(*texts, strict=False)))


def together(rows: Sequence[str]) -> str:
    """Return a pattern for the runs of some rows: all runs with their common beginning.

    >>> together(["mnist-iid-spfl", "mnist-iid-spfl"]), together(["mnist-iid-spfl", "mnist-iid-lga"])
    ('mnist-iid-spfl-*', 'mnist-iid-*')
    """
    return f"{rows[0]}-*" if len(set(rows)) == 1 else f"{beginning_of(rows)}*"


def needed_data(cases: Iterable[Case]) -> str:
    """Return the data sets that some cases need, public samples included."""
    specs = {
        str(spec)
        for case in cases
        for spec in (case.settings["data"], case.settings.get("options", {}).get("public", ""))
    }
    needed = {source_of(spec) for spec in specs if spec}
    told = [
        f"`sparsona data get {name}`{' (which says how to make it)' if DATASETS.get(name).by_hand else ''}"
        for name in TO_GET
        if name in needed
    ]
    return f", after {' and '.join(told)}" if told else ""
