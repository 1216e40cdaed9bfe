"""Papers whose runs are independent cases, except for the trials that choose their settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from sparsona.errors import InputError
from sparsona.experiment import Experiment
from sparsona.many import Loader, Planned, RunEnded, RunPlan, Watcher, run_many
from sparsona.many.processes import place_for
from sparsona.prepare import Prepared
from sparsona.runs.about import read_about
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport
from sparsona_papers._command import needed_data
from sparsona_papers._excerpt import ensure
from sparsona_papers._paper import TUNING, Case, Extra, Paper, Size
from sparsona_papers._registry import Job, MissingRuns, no_such_size
from sparsona_papers._results import Results, compact, digest_of
from sparsona_papers._runs import last_validation
from sparsona_papers._tables import Part, runs_of, tables, told_scores


@dataclass(frozen=True)
class Cases:
    """The cases of a paper in one size, as the commands use them."""

    name: str
    size: Size
    paper: Paper

    @property
    def title(self) -> str:
        """The headline of its tables."""
        return self.paper.title

    def run(self, job: Job) -> None:
        """Make the cases that are not kept, the cheap ones first."""
        chosen = self._chosen(job.only)
        job.out.mkdir(parents=True, exist_ok=True)
        _Session(self.paper, job).run(chosen)

    def left(self, only: str, kept: Results, others: Sequence[Results]) -> MissingRuns:
        """Count the cases that are not kept. Rows that have chosen the same settings are one run."""
        chosen, known = self._chosen(only), Results(None, kept.runs)
        missing = [case for case in chosen if not known.adopt(case, self.paper, others)]
        cases: dict[str, Case] = {}
        for case in missing:
            value = known.choice(case, self.paper)
            cases.setdefault(case.name if value is None else digest_of(case.settled(value).identity), case)
        trials = {trial.name: trial for case in missing for trial in self.paper.trials(case)}
        untried = [trial for trial in trials.values() if known.find(trial.name, trial.identity) is None]
        names: dict[str, list[str]] = {}
        for case in cases.values():
            names.setdefault(case.of, []).append(case.name)
        return MissingRuns(len(chosen), names, len(untried), needed_data(cases.values()))

    def tables(self, kept: Results) -> str:
        """The kept runs as tables of markdown."""
        return "\n".join(tables(self.paper, self.name, self.size, runs_of(self.paper, kept)))

    def part(self, kept: Results) -> Part:
        """The claims of this size, and the kept runs that decide them."""
        return Part(self.size, self.paper.claims, runs_of(self.paper, kept))

    def draw(self, out: Path) -> list[Path]:
        """Draw the figures that the runs in `out` allow, and return their files."""
        return [out / file for file, draw in self.paper.drawings.items() if draw(out, out / file)]

    def with_seeds_from(self, first: int) -> Cases:
        """The same cases with other seeds, beginning with `first`."""
        return replace(self, paper=self.paper.with_seeds_from(first))

    def _chosen(self, only: str) -> list[Case]:
        """Return the cases whose names match a pattern, or else those whose rows match, as `--left` names them; cheap
        ones first.
        """
        known = self.paper.cases
        if not known:
            raise no_such_size(self.name, self.size)
        by_name = [case for case in known if fnmatch(case.name, only)]
        chosen = by_name or [case for case in known if fnmatch(case.of, only)]
        if not chosen:
            raise InputError(
                f"no case of {self.name} is called {only!r}, nor is a row; there are"
                f" {', '.join(c.name for c in known[:5])}, ..."
            )
        return sorted(chosen, key=lambda case: case.cost)


class _Session:
    """The runs of one call: first the trials that choose a setting, then the paper's runs."""

    def __init__(self, paper: Paper, job: Job) -> None:
        self.paper, self.out, self.kept = paper, job.out, job.kept
        self._others, self._where, self._say, self._again = job.others, job.where, job.say, job.again
        self._loader = Loader()
        self._titles: dict[str, str] = {}
        self._choices: dict[str, dict[str, float]] = {}
        self._settled: dict[str, Case] = {}

    def run(self, chosen: Sequence[Case]) -> None:
        """Make the chosen runs that are not kept, or all again, with the trials that choose their settings."""
        todo = [case for case in chosen if self._again or not self._is_kept(case)]
        if not todo:
            return
        planned: dict[str, Planned] = {}
        for case in todo:
            title = f"[{chosen.index(case) + 1}/{len(chosen)}] {case.name}"
            trials = [trial for trial in self.paper.trials(case) if self._again or not self._is_kept(trial)]
            for one in (*trials, case):
                if one.name not in planned:
                    self._titles[one.name] = title
                    needs = frozenset(trial.name for trial in trials) if one is case else frozenset[str]()
                    planned[one.name] = Planned(one.name, partial(self._plan, one), needs)
        engine = str(self._where["engine"])
        longest = self._prepare({**max(todo, key=lambda case: case.cost).settings, **self._where}, todo[-1].name)
        with place_for(longest, len(planned), self.out, engine, self._loader) as place:
            run_many(list(planned.values()), place, Watcher(round=self._round, ended=self._ended))

    def _is_kept(self, case: Case) -> bool:
        """True if the same run is kept, in this size or in another, from which it is then copied."""
        return self.kept.adopt(case, self.paper, self._others)

    def _prepare(self, settings: Mapping[str, Any], name: str) -> Prepared:
        ensure(str(settings.get("data", "")))
        return self._loader.prepare(settings, f"the case {name}")

    def _tell(self, name: str, text: str) -> None:
        self._say(f"{self._titles[name]}: {text}")

    def _plan(self, case: Case) -> RunPlan | None:
        """Return the plan of a case; None if an equal run has ended meanwhile."""
        settled, choice = self._chosen(case)
        if case.grid is not None and not self._again and self._is_kept(settled):
            return None
        settings = dict(settled.settings)
        ensure(str(settings.get("data", "")))
        self._settled[case.name], self._choices[case.name] = settled, choice
        watch = self.paper.watch if case.table != TUNING else None
        return RunPlan(
            self.out / case.name,
            {**settings, **self._where},
            f"the case {case.name}",
            after_round=None if watch is None else partial(_write_watched, watch),
        )

    def _chosen(self, case: Case) -> tuple[Case, dict[str, float]]:
        """Return a case with the setting that validation data choose for its row, and the choice."""
        value = self.kept.choice(case, self.paper)
        if case.grid is None or value is None:
            return case, {}
        scores = self.kept.tried(case, self.paper.trials(case))
        told = ", ".join(f"{name.removeprefix(f'tune-{case.of}-')}: {score:.4f}" for name, score in scores.items())
        choice = case.grid.named(value)
        self._tell(case.name, f"{', '.join(f'{k} = {v:g}' for k, v in choice.items())} by validation ({told})")
        return case.settled(value), choice

    def _round(self, name: str, done: RoundReport) -> None:
        if done.scores:
            self._tell(name, f"round {done.round} of {self._settled[name].settings.get('rounds', DEFAULT_ROUNDS)}")

    def _ended(self, ended: RunEnded) -> None:
        if ended.error is not None:
            raise ended.error
        case, folder = self._settled[ended.name], RunDirectory(self.out / ended.name)
        more: dict[str, Any] = {
            "test_samples": sum(client.test for client in read_about(folder.path).clients.values()),
            "validation": last_validation(folder) | self._read(self.paper.validation, case, folder),
        }
        if self.paper.extra is not None and case.table != TUNING:
            more["extra"] = self._read(self.paper.extra, case, folder)
        if (watched := folder.path / WATCHED).exists():
            lines = map(json.loads, watched.read_text(encoding="utf-8").splitlines())
            by_round = {line["round"]: line for line in lines}
            names = dict.fromkeys(name for line in by_round.values() for name in line if name != "round")
            more["watched"] = {name: [by_round[r].get(name) for r in sorted(by_round)] for name in names}
        if self._choices[case.name]:
            more["chosen"] = self._choices[case.name]
        summary = folder.summary()
        self.kept.add(case.name, compact(summary, case.identity, more))
        if case.table != TUNING:
            self._tell(case.name, f"{told_scores(self.kept.runs[case.name])}, {summary['seconds']:.0f} s")

    def _read(self, extra: Extra | None, case: Case, folder: RunDirectory) -> dict[str, float]:
        """Return the numbers that the paper's own code reads from a finished run."""
        return {} if extra is None else dict(extra(folder, self._prepare(case.settings, case.name)))


WATCHED = "watched.jsonl"
DEFAULT_ROUNDS = Experiment.model_fields["rounds"].default


def _write_watched(watch: Callable[[RunDirectory], Mapping[str, float]], run: RunDirectory, done: RoundReport) -> None:
    """Append the paper's own measurements of a round to the run's directory."""
    with (run.path / WATCHED).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"round": done.round, **watch(run)}) + "\n")
