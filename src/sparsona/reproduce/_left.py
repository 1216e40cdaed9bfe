"""What a command would still run, and how long that takes: to be asked before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsona.errors import counted
from sparsona.reproduce._paper import Case, Paper
from sparsona.reproduce._price import in_words, needed_data
from sparsona.reproduce._results import Results, digest_of


@dataclass(frozen=True)
class Left:
    """Of `asked` cases those that no result is kept of, the trials that choose their settings, and the CPU hours of
    both by row, where they are known."""

    asked: int
    cases: tuple[Case, ...]
    trials: tuple[Case, ...]
    hours: dict[str, float]

    def lines(self) -> list[str]:
        """What is left in all, and of every row."""
        if not self.cases:
            return [f"nothing is left: all {self.asked} runs are kept"]
        rows = dict.fromkeys(case.of for case in self.cases)
        own = {row: counted(sum(case.of == row for case in self.cases), "run") for row in rows}
        trials = f" and {counted(len(self.trials), 'trial')}" if self.trials else ""
        told = f"{len(self.cases)} of {counted(self.asked, 'run')}{trials} are left"
        if not self.hours:
            return [f"{told}{needed_data(self.cases)}", *(f"  {row}: {runs}" for row, runs in own.items())]
        each = (f"  {row}: {runs}, {in_words(self.hours[row])}" for row, runs in own.items())
        return [f"{told}: {in_words(sum(self.hours.values()))}{needed_data(self.cases)}", *each]


def left_of(paper: Paper, chosen: Sequence[Case], own: Results, others: Sequence[Results]) -> Left:
    """What is left of some cases, where `own` are the results of their size. Rows that have chosen the same settings
    are one run."""
    kept = Results(None, own.runs)
    open_cases = [case for case in chosen if not kept.adopt(case, paper, others)]
    cases: dict[str, Case] = {}
    for case in open_cases:
        value = kept.choice(case, paper)
        cases.setdefault(case.name if value is None else digest_of(case.settled(value).identity), case)
    found = {trial.name: trial for case in open_cases for trial in paper.trials(case)}
    trials = [trial for trial in found.values() if kept.find(trial.name, trial.identity) is None]
    hours: dict[str, float] = {}
    if paper.hours is not None:
        for case in (*cases.values(), *trials):
            hours[case.of] = hours.get(case.of, 0.0) + paper.hours(case)
    return Left(len(chosen), tuple(cases.values()), tuple(trials), hours)
