"""The papers' experiments, one file a paper: which runs there are, what the paper says, what came out.

:func:`reproduce` makes them side by side where that pays, the cheap ones first. A run that is finished is not run again
and one that was interrupted is continued, so the command can be stopped and started at will. What a card needs of a run
is kept in a small file (`results`), which outlives the run's directory: a case that stands there is not run again,
either, unless it is asked for.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from sparsona.errors import InputError
from sparsona.experiment import Experiment
from sparsona.federation.resources import Resources
from sparsona.files import write_atomically
from sparsona.many import Ended, Planned, Watcher, run_many
from sparsona.many.choice import place_for
from sparsona.many.plan import Loader, RunPlan
from sparsona.message import Vector
from sparsona.prepare import Prepared
from sparsona.registry import Registry
from sparsona.reproduce._differences import Runs, Summary, score
from sparsona.reproduce._excerpt import ensure
from sparsona.reproduce._left import Left, left_of
from sparsona.reproduce._paper import SIZES, TUNING, Case, Extra, Grid, Kept, Paper, Size, Study
from sparsona.reproduce._results import Results, compact
from sparsona.reproduce._tables import MEASURED, Part, number, report, runs_of, spread, tables, told_scores, verdicts
from sparsona.reproduce._verdicts import Claim
from sparsona.runs.about import read_about
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport
from sparsona.runs.scores import summarise
from sparsona.training.runner import ModelRunner

__all__ = ["MEASURED", "SIZES", "Case", "Claim", "Grid", "Kept", "Left", "Paper", "Runs", "Size", "Study", "Summary",
           "left", "number", "reproduce", "runs_of", "score", "spread", "verdicts"]  # fmt: skip


PAPERS: Registry[Callable[[Size], Paper]] = Registry("paper", __name__)
"""A paper is a function of the size in which it is asked for. One that does not come in it has no cases."""


def reproduce(
    name: str,
    size: Size,
    out: Path,
    only: str = "*",
    say: Callable[[str], None] = print,
    run: bool = True,
    results: Path | None = None,
    again: bool = False,
    engine: str = "auto",
    resources: Resources | None = None,
) -> Path:
    """Run a paper's cases whose names match `only`, a case's or a row's, into `out`, and write results.md there.
    Returns that file.

    With `run` false nothing is run: the table is made of the runs that are there. `results` is the folder in which a
    compact form of every run is kept; cases that are kept there are run only if `again` is true. `engine` and
    `resources` say where the work is done and change no number.
    """
    paper = _paper(name, size)
    if paper.study is not None:
        if again or engine not in ("auto", "inprocess") or (resources or Resources()) != Resources():
            raise InputError(
                f"{name} is a study, whose runs are made one by one and once: leave --again, --engine and --workers"
                " out, and start the command a second time for a second core"
            )
        return _carried_out(
            paper.study, paper.title, out, only, say, run, Results.read(results_file(results, name, size))
        )
    chosen = _chosen(paper, name, size, only)
    table = out / "results.md"
    out.mkdir(parents=True, exist_ok=True)
    kept = Results.read(results_file(results, name, size))
    if run:
        resources = resources or Resources()
        where = {"engine": engine, "workers": resources.workers, "cluster": asdict(resources.cluster)}
        others = [Results.read(results_file(results, name, other)) for other in SIZES if other != size]
        session = _Session(paper, out, kept, others, where, lambda: report(paper, name, size, kept), say)
        session.run(chosen, again)
    write_atomically(table, report(paper, name, size, kept))
    for file, draw in paper.drawings.items():
        if draw(out, out / file):
            say(f"drawn: {out / file}")
    return table


def left(name: str, size: Size, only: str = "*", results: Path | None = None) -> Left:
    """What :func:`reproduce` would run of what is not kept, and how long that takes."""
    paper = _paper(name, size)
    if paper.study is not None:
        raise InputError(f"{name} is a study: what it runs last is known when the rest is done, leave --left out")
    chosen = _chosen(paper, name, size, only)
    own, *others = (Results.read(results_file(results, name, one)) for one in (size, *(s for s in SIZES if s != size)))
    return left_of(paper, chosen, own, others)


def _paper(name: str, size: Size) -> Paper:
    if size not in SIZES:
        raise InputError(f"a size is {', '.join(SIZES[:-1])} or {SIZES[-1]}, not {size!r}")
    return PAPERS.get(name)(size)


def _chosen(paper: Paper, name: str, size: Size, only: str) -> list[Case]:
    """The cases whose names match a pattern, or else those of the rows that do, as `--left` names them; the cheap ones
    first."""
    if not paper.cases:
        raise InputError(f"{name} does not come in the size {size}: take quick, or leave --size out for the whole")
    by_name = [case for case in paper.cases if fnmatch(case.name, only)]
    chosen = by_name or [case for case in paper.cases if fnmatch(case.of, only)]
    if not chosen:
        raise InputError(
            f"no case of {name} is called {only!r}, nor is a row; there are"
            f" {', '.join(c.name for c in paper.cases[:5])}, ..."
        )
    return sorted(chosen, key=lambda case: case.cost)


def _carried_out(
    study: Study, title: str, out: Path, only: str, say: Callable[[str], None], run: bool, kept: Results
) -> Path:
    """Run what a study lacks, keep all of it, and write its report."""
    found = {**kept.runs, **(study.run(out, only, say, kept.runs) if run else {}), **study.read(out)}
    if found != kept.runs:
        kept.replace(found)
    write_atomically(out / "results.md", f"# {title}\n\n{study.report(found)}")
    return out / "results.md"


def results_file(results: Path | None, name: str, size: Size) -> Path | None:
    """Where the compact results of a paper are kept: those of every size apart."""
    return None if results is None else results / f"{name}{'' if size == 'whole' else f'-{size}'}.json"


class _Session:
    """The runs of one call: those that choose a setting, and after them those that the paper has."""

    def __init__(
        self,
        paper: Paper,
        out: Path,
        kept: Results,
        others: Sequence[Results],
        where: Mapping[str, Any],
        table: Callable[[], str],
        say: Callable[[str], None],
    ) -> None:
        """`others` are the results of other sizes; `where` are the settings that say where the work is done; `table`
        makes the text of results.md."""
        self.paper, self.out, self.kept = paper, out, kept
        self._others, self._where, self._table, self._say = others, where, table, say
        self._loader = Loader()
        self._titles: dict[str, str] = {}
        self._choices: dict[str, dict[str, float]] = {}
        self._settled: dict[str, Case] = {}
        self._again = False

    def run(self, chosen: Sequence[Case], again: bool) -> None:
        """Make the runs that were chosen and are not kept, or all of them `again`, with what chooses their settings."""
        self._again = again
        todo = [case for case in chosen if again or not self._is_kept(case)]
        if not todo:
            return
        planned: dict[str, Planned] = {}
        for case in todo:
            title = f"[{chosen.index(case) + 1}/{len(chosen)}] {case.name}"
            trials = [trial for trial in self.paper.trials(case) if again or not self._is_kept(trial)]
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
        """Whether the same run is kept, in this size or in another, from which it is then taken over."""
        return self.kept.adopt(case, self.paper, self._others)

    def _prepare(self, settings: Mapping[str, Any], name: str) -> Prepared:
        ensure(str(settings.get("data", "")))
        return self._loader.prepare(settings, f"the case {name}")

    def _tell(self, name: str, text: str) -> None:
        self._say(f"{self._titles[name]}: {text}")

    def _plan(self, case: Case) -> RunPlan | None:
        """How a case is run, when its turn has come; None if a run that has ended meanwhile was the same one."""
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
        """A case with what validation data choose for its row, and the choice."""
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

    def _ended(self, ended: Ended) -> None:
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
            write_atomically(self.out / "results.md", self._table())

    def _read(self, extra: Extra | None, case: Case, folder: RunDirectory) -> dict[str, float]:
        """The numbers that the paper's own code reads off a finished run."""
        return {} if extra is None else dict(extra(folder, self._prepare(case.settings, case.name)))


WATCHED = "watched.jsonl"
DEFAULT_ROUNDS = Experiment.model_fields["rounds"].default


def _write_watched(watch: Callable[[RunDirectory], Mapping[str, float]], run: RunDirectory, done: RoundReport) -> None:
    """Append to the run's directory what a paper wants to know of each round."""
    with (run.path / WATCHED).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"round": done.round, **watch(run)}) + "\n")


def last_validation(folder: RunDirectory) -> dict[str, float]:
    """The clients' mean score on validation samples after the last round, by point; clients without any left out."""
    lines = folder.lines()
    last = [line.validation for line in lines if line.round == lines[-1].round]
    found: dict[str, float] = {}
    for point in ("pre", "post"):
        scores = [own[point] for own in last if point in own and own[point] == own[point]]
        if scores:
            found[point] = sum(scores) / len(scores)
    return found


def finished(cases: Iterable[Case], out: Path) -> dict[str, Summary]:
    """The summaries of the cases whose run directories are there and done, by name: for drawings."""
    folders = {case.name: RunDirectory(out / case.name) for case in cases}
    return {name: folder.summary() for name, folder in folders.items() if folder.summary_file.exists()}


def server_state(folder: Path, kind: type) -> Any:
    """What the server of a finished run knew at the end; `kind` is the class of the method's server state."""
    return Checkpointer(RunDirectory(folder).checkpoint).server(kind)


def server_scores(folder: RunDirectory, prepared: Prepared, kind: type) -> dict[str, float]:
    """What the server's own vector scores on the clients' test samples: their mean, and weighted by their sizes."""
    found = scores_of(server_state(folder.path, kind).weights, runner_of(prepared), prepared)
    named = {"server": found["mean"], "server_weighted": found["weighted"]}
    return {name: value for name, value in named.items() if value is not None}


def runner_of(prepared: Prepared) -> ModelRunner:
    """What trains and tests models of a run, beside the run itself."""
    setup = prepared.setup
    return ModelRunner(copy.deepcopy(setup.module), setup.federation.data, setup.objective, setup.task.chance)


def scores_of(weights: Vector, runner: ModelRunner, prepared: Prepared) -> Mapping[str, float | None]:
    """What one model scores on the clients' test samples."""
    setup = prepared.setup
    tests = {client: setup.federation.splits[client].test for client in setup.task.clients}
    return summarise(
        {client: runner.score(weights, test) for client, test in tests.items()},
        {client: len(test) for client, test in tests.items()},
    )


BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
"""What stands between these lines of a card is made of the kept results."""


def card(names: Sequence[str], results: Path, text: str) -> str:
    """A card with its tables and verdicts made anew of the kept results of these papers, of every size."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"the card has no lines {BEGIN!r} and {END!r}: add them where the tables shall stand")
    lines = [line for name in names for line in _results_of(name, results)]
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}"


def _results_of(name: str, results: Path) -> list[str]:
    """The tables of every size that has been run, and one table of verdicts."""
    lines: list[str] = []
    parts: list[Part] = []
    for size in SIZES:
        paper, kept = PAPERS.get(name)(size), Results.read(results_file(results, name, size))
        if not kept.runs and size != "quick":
            continue
        lines += [f"## {paper.title}", ""]
        if paper.study is not None:
            body = paper.study.report(kept.runs) if kept.runs else "Nothing has been run."
        else:
            parts.append(Part(size, paper.claims, runs_of(paper, kept)))
            body = "\n".join(tables(paper, name, size, parts[-1].runs))
        lines += [body.replace("\n## ", "\n### ").strip(), ""]
    if any(part.claims for part in parts):
        lines += ["### Claims", "", *verdicts(parts), ""]
    return lines
