"""What a command would still run, and how long that takes: to be asked before it is started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparsona.reproduce._paper import Case, Paper
from sparsona.reproduce._price import in_words, needed_data
from sparsona.reproduce._results import Results, digest_of


@dataclass(frozen=True)
class Left:
    """Of `asked` cases those that no result is kept of, the trials that choose their settings, and the CPU hours of
    both by row."""

    asked: int
    cases: tuple[Case, ...]
    trials: tuple[Case, ...]
    hours: dict[str, float]

    def lines(self) -> list[str]:
        """What is left in all, and of every row."""
        if not self.cases:
            return [f"nothing is left: all {self.asked} runs are kept"]
        rows = {row: [case for case in self.cases if case.of == row] for row in self.hours}
        own = [f"  {row}: {_counted(len(cases), 'run')}, {in_words(self.hours[row])}" for row, cases in rows.items()]
        trials = f" and {_counted(len(self.trials), 'trial')}" if self.trials else ""
        told = f"{len(self.cases)} of {_counted(self.asked, 'run')}{trials} are left"
        return [f"{told}: {in_words(sum(self.hours.values()))}{needed_data(self.cases)}", *own]


def left_of(paper: Paper, chosen: Sequence[Case], results: Iterable[Results]) -> Left:
    """What is left of some cases, where `results` are those of all sizes. Rows that have chosen the same settings are
    one run."""
    lines = {f"{number} {name}": run for number, one in enumerate(results) for name, run in one.runs.items()}
    kept = Results(None, lines)
    open_cases = [case for case in chosen if kept.run_of(case, paper) is None]
    cases: dict[str, Case] = {}
    for case in open_cases:
        value = kept.choice(case, paper)
        cases.setdefault(case.name if value is None else digest_of(case.settled(value).identity), case)
    found = {trial.name: trial for case in open_cases for trial in paper.trials(case)}
    trials = [trial for trial in found.values() if kept.find(trial.name, trial.identity) is None]
    hours: dict[str, float] = {}
    for case in (*cases.values(), *trials):
        hours[case.of] = hours.get(case.of, 0.0) + paper.hours(case)
    return Left(len(chosen), tuple(cases.values()), tuple(trials), hours)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
