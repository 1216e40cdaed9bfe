"""The papers by name, and their interface for the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparsona.errors import InputError
from sparsona.registry import Registry
from sparsona.words import counted
from sparsona_papers._paper import Paper, Size
from sparsona_papers._results import Results
from sparsona_papers._tables import Part


@dataclass(frozen=True)
class Job:
    """One call of `sparsona reproduce`.

    `only` is a pattern of names. With `again`, runs that are kept are run again. `others` are the kept results of other
    sizes. `where` holds the settings of the engine, which change no number.
    """

    out: Path
    only: str
    again: bool
    where: Mapping[str, Any]
    kept: Results
    others: Sequence[Results]
    say: Callable[[str], None]


@dataclass(frozen=True)
class MissingRuns:
    """The names of the `asked` runs that are not kept, by row; the number of trials; and the data to get first."""

    asked: int
    names: Mapping[str, Sequence[str]]
    trials: int = 0
    data: str = ""

    def lines(self) -> list[str]:
        """Return the number of missing runs, in total and per row.

        >>> MissingRuns(3, {"a": ["a-1", "a-2"]}, trials=4).lines()
        ['2 of 3 runs and 4 trials are left', '  a: 2 runs']
        """
        if not self.names:
            return [f"nothing is left: all {self.asked} runs are kept"]
        trials = f" and {counted(self.trials, 'trial')}" if self.trials else ""
        told = f"{sum(map(len, self.names.values()))} of {counted(self.asked, 'run')}{trials} are left{self.data}"
        return [told, *(f"  {row}: {counted(len(own), 'run')}" for row, own in self.names.items())]


class Reproduction(Protocol):
    """A paper's experiments in one size, as the commands use them."""

    @property
    def title(self) -> str:
        """The headline of its tables."""

    def run(self, job: Job) -> None:
        """Make the runs that are missing, and keep them in `job.kept`."""

    def left(self, only: str, kept: Results, others: Sequence[Results]) -> MissingRuns:
        """Count the runs that are not kept."""

    def tables(self, kept: Results) -> str:
        """The kept runs as tables of markdown."""

    def part(self, kept: Results) -> Part:
        """The claims of this size, and the kept runs that decide them."""

    def draw(self, out: Path) -> list[Path]:
        """Draw the figures that the runs in `out` allow, and return their files."""

    def with_seeds_from(self, first: int) -> Reproduction:
        """The same experiments with other seeds, beginning with `first`."""


PAPERS: Registry[Callable[[Size], Paper | Reproduction]] = Registry("paper", "sparsona_papers")
"""A paper is a function of its size. If its runs do not depend on each other, it returns a :class:`Paper`."""


def no_such_size(name: str, size: Size) -> InputError:
    """The error for a paper that has no runs in a size."""
    return InputError(f"{name} does not come in the size {size}: take quick, or leave --size out for the whole")
