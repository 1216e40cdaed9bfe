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
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from sparsona.errors import InputError
from sparsona.experiment import Experiment
from sparsona.federation.resources import Resources
from sparsona.files import write_atomically
from sparsona.many import Ended, Planned, Watcher, run_many
from sparsona.many.choice import place_for
from sparsona.many.plan import Loader, RunPlan
from sparsona.prepare import Prepared
from sparsona.registry import Registry
from sparsona.reproduce._results import Results, compact
from sparsona.reproduce._verdicts import Check, Claim, Runs, Summary, Verdict, interval, score, values
from sparsona.runs.about import read_about
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord, RoundReport
from sparsona.runs.scores import summarise
from sparsona.training.runner import ModelRunner

__all__ = ["Case", "Check", "Claim", "Paper", "Runs", "Study", "Summary", "Verdict", "reproduce", "score"]


@dataclass(frozen=True)
class Grid:
    """What is chosen for a row on validation data before its runs: `key` (``training.lr``), one of `values`. Several
    keys are joined by commas; a value then has a number for each.

    Each value has one run of `rounds` rounds with the row's first seed, in which the share `validation` of the training
    samples is kept back; the mean over the clients at `point` decides, and of equals the first. Test samples have no
    part in it. Rows that share a grid have the same budget.
    """

    key: str
    values: tuple[float | tuple[float, ...], ...]
    rounds: int
    point: str = "pre"
    validation: float = 0.2

    def named(self, value: float | tuple[float, ...]) -> dict[str, float]:
        """
        >>> Grid("training.lr,options.lam", ((0.1, 3),), 5).named((0.1, 3))
        {'training.lr': 0.1, 'options.lam': 3}
        """
        return dict(zip(self.key.split(","), value if isinstance(value, tuple) else (value,), strict=True))

    def applied(self, settings: Mapping[str, Any], value: float | tuple[float, ...]) -> dict[str, Any]:
        """The settings with this value in them."""
        out = dict(settings)
        for name, number in self.named(value).items():
            section, _, key = name.rpartition(".")
            out[section] = {**out.get(section, {}), key: number}
        return out


@dataclass(frozen=True)
class Case:
    """One run: its directory's name, the table it stands in, the settings, and the paper's number for it, if any.

    Runs of the same `row` differ in their seed only. `grid` leaves one setting to validation data. `cost` orders the
    cases: the samples that it trains on, or anything that grows with its time.
    """

    name: str
    table: str
    settings: Mapping[str, Any]
    paper: float | None = None
    cost: float = 0.0
    row: str = ""
    grid: Grid | None = None

    @property
    def of(self) -> str:
        """The row of the table that the case belongs to."""
        return self.row or self.name

    @property
    def seed(self) -> int:
        """The case's seed."""
        return int(self.settings.get("seed", 0))

    @property
    def identity(self) -> dict[str, Any]:
        """The settings, and how one of them is chosen. That an excerpt is not scaled again goes without saying."""
        settings = {key: value for key, value in self.settings.items() if key != "columns"}
        if self.grid is None:
            return settings
        return {**settings, "grid": [self.grid.key, list(self.grid.values), self.grid.rounds]}


Extra: TypeAlias = Callable[[RunDirectory, Prepared], Mapping[str, float]]
"""Numbers that a paper's claims need beside the summary, read off a finished run."""


Kept: TypeAlias = Mapping[str, dict[str, Any]]
"""What is kept of runs, by name."""


@dataclass(frozen=True)
class Study:
    """Runs that depend on each other, where the cases of a paper do not.

    `run` carries out those whose names match a pattern, into a folder, and tells about it; runs that are known already
    are left out. `read` gives the runs that a folder holds. `report` makes markdown of runs.
    """

    run: Callable[[Path, str, Callable[[str], None], Kept], Kept]
    read: Callable[[Path], Kept]
    report: Callable[[Kept], str]


@dataclass(frozen=True)
class Paper:
    """A paper's runs, its claims, and its drawings: each takes the folder of the runs and the file to write.

    `tables` are made of the runs that are kept: markdown, by title. `extra` reads numbers off a finished run, `watch`
    off a run's checkpoint after every round. `study` stands in the place of the cases where these depend on each other.
    """

    title: str
    cases: Sequence[Case]
    claims: Sequence[Claim] = ()
    drawings: Mapping[str, Callable[[Path, Path], bool]] = field(default_factory=dict)
    tables: Mapping[str, Callable[[Runs], str]] = field(default_factory=dict)
    extra: Extra | None = None
    watch: Callable[[RunDirectory], Mapping[str, float]] | None = None
    study: Study | None = None


PAPERS: Registry[Callable[[bool], Paper]] = Registry("paper", __name__)
"""A paper is a function of `quick`: whether to make do with what a small machine runs within the hour."""


def reproduce(
    name: str,
    quick: bool,
    out: Path,
    only: str = "*",
    say: Callable[[str], None] = print,
    run: bool = True,
    results: Path | None = None,
    again: bool = False,
    engine: str = "auto",
    resources: Resources | None = None,
) -> Path:
    """Run a paper's cases whose names match `only` into `out`, and write results.md there. Returns that file.

    With `run` false nothing is run: the table is made of the runs that are there. `results` is the folder in which a
    compact form of every run is kept; cases that are kept there are run only if `again` is true. `engine` and
    `resources` say where the work is done and change no number.
    """
    paper = PAPERS.get(name)(quick)
    if paper.study is not None:
        return _carried_out(
            paper.study, paper.title, out, only, say, run, Results.read(results_file(results, name, quick))
        )
    chosen = sorted((c for c in paper.cases if fnmatch(c.name, only)), key=lambda case: case.cost)
    if not chosen:
        raise InputError(
            f"no case of {name} is called {only!r}; there are {', '.join(c.name for c in paper.cases[:5])}, ..."
        )
    table = out / "results.md"
    out.mkdir(parents=True, exist_ok=True)
    kept = Results.read(results_file(results, name, quick))
    if run:
        resources = resources or Resources()
        where = {"engine": engine, "workers": resources.workers, "cluster": asdict(resources.cluster)}
        session = _Session(paper, out, kept, where, lambda: report(paper, name, quick, out, kept), say)
        session.run(chosen, [case for case in chosen if again or not kept.find(case.name, case.identity)])
    write_atomically(table, report(paper, name, quick, out, kept))
    for file, draw in paper.drawings.items():
        if draw(out, out / file):
            say(f"drawn: {out / file}")
    return table


def _carried_out(
    study: Study, title: str, out: Path, only: str, say: Callable[[str], None], run: bool, kept: Results
) -> Path:
    """Run what a study lacks, keep all of it, and write its report."""
    found = {**kept.runs, **(study.run(out, only, say, kept.runs) if run else {}), **study.read(out)}
    if found != kept.runs:
        kept.replace(found)
    write_atomically(out / "results.md", f"# {title}\n\n{study.report(found)}")
    return out / "results.md"


def results_file(results: Path | None, name: str, quick: bool) -> Path | None:
    """Where the compact results of a paper are kept: those of `quick` and of the whole apart."""
    return None if results is None else results / f"{name}{'-quick' if quick else ''}.json"


class _Session:
    """The runs of one call: those that choose a setting, and after them those that the paper has."""

    def __init__(
        self,
        paper: Paper,
        out: Path,
        kept: Results,
        where: Mapping[str, Any],
        table: Callable[[], str],
        say: Callable[[str], None],
    ) -> None:
        """`where` are the settings that say where the work is done; `table` makes the text of results.md."""
        self.paper, self.out, self.kept = paper, out, kept
        self._where, self._table, self._say = where, table, say
        self._loader = Loader()
        self._titles: dict[str, str] = {}
        self._cases: dict[str, Case] = {}
        self._choices: dict[str, dict[str, float]] = {}
        self._settings: dict[str, dict[str, Any]] = {}

    def run(self, chosen: Sequence[Case], todo: Sequence[Case]) -> None:
        """Make the runs of `todo`, of all that were chosen."""
        if not todo:
            return
        planned: dict[str, Planned] = {}
        for case in todo:
            title = f"[{chosen.index(case) + 1}/{len(chosen)}] {case.name}"
            trials = [trial for trial in self._trials(case) if not self.kept.find(trial.name, trial.identity)]
            for one in (*trials, case):
                if one.name not in planned:
                    self._titles[one.name], self._cases[one.name] = title, one
                    needs = frozenset(trial.name for trial in trials) if one is case else frozenset[str]()
                    planned[one.name] = Planned(one.name, partial(self._plan, one), needs)
        engine = str(self._where["engine"])
        longest = self._prepare({**max(todo, key=lambda case: case.cost).settings, **self._where}, todo[-1].name)
        with place_for(longest, len(planned), self.out, engine, self._loader) as place:
            run_many(list(planned.values()), place, Watcher(round=self._round, ended=self._ended))

    def _prepare(self, settings: Mapping[str, Any], name: str) -> Prepared:
        return self._loader.prepare(settings, f"the case {name}")

    def _tell(self, name: str, text: str) -> None:
        self._say(f"{self._titles[name]}: {text}")

    def _trials(self, case: Case) -> list[Case]:
        """The runs that choose a setting for a case's row."""
        if case.grid is None:
            return []
        grid, seed = case.grid, min(c.seed for c in self.paper.cases if c.of == case.of)
        found = []
        for value in grid.values:
            name = f"tune-{case.of}-{'-'.join(f'{number:g}' for number in grid.named(value).values())}"
            settings = grid.applied({**case.settings, "rounds": grid.rounds, "seed": seed}, value)
            settings["split"] = {**settings.get("split", {}), "validation": grid.validation}
            settings["evaluation"] = {"every": 0}
            found.append(Case(name, "tuning", settings))
        return found

    def _plan(self, case: Case) -> RunPlan:
        settings, choice = self._chosen(case)
        self._settings[case.name], self._choices[case.name] = settings, choice
        watch = self.paper.watch if case.table != "tuning" else None
        return RunPlan(
            self.out / case.name,
            {**settings, **self._where},
            f"the case {case.name}",
            after_round=None if watch is None else partial(_write_watched, watch),
        )

    def _chosen(self, case: Case) -> tuple[dict[str, Any], dict[str, float]]:
        """A case's settings with what validation data choose for its row, and the choice."""
        if case.grid is None:
            return dict(case.settings), {}
        grid = case.grid
        found = [(trial.name, self.kept.find(trial.name, trial.identity)) for trial in self._trials(case)]
        tried = {name: (run or {}).get("validation", {}).get(grid.point) or 0.0 for name, run in found}
        best = max(range(len(tried)), key=lambda place: (list(tried.values())[place], -place))
        choice = grid.named(grid.values[best])
        told = ", ".join(f"{name.removeprefix(f'tune-{case.of}-')}: {score:.4f}" for name, score in tried.items())
        settled = ", ".join(f"{key} = {value:g}" for key, value in choice.items())
        self._tell(case.name, f"{settled} by validation ({told})")
        return grid.applied(case.settings, grid.values[best]), choice

    def _round(self, name: str, done: RoundReport) -> None:
        if done.scores:
            self._tell(name, f"round {done.round} of {self._settings[name].get('rounds', DEFAULT_ROUNDS)}")

    def _ended(self, ended: Ended) -> None:
        if ended.error is not None:
            raise ended.error
        case, folder = self._cases[ended.name], RunDirectory(self.out / ended.name)
        more: dict[str, Any] = {
            "test_samples": sum(client.test for client in read_about(folder.path).clients.values()),
            "validation": last_validation(folder),
        }
        if self.paper.extra is not None and case.table != "tuning":
            more["extra"] = dict(self.paper.extra(folder, self._prepare(self._settings[case.name], case.name)))
        if (watched := folder.path / WATCHED).exists():
            lines = map(json.loads, watched.read_text(encoding="utf-8").splitlines())
            by_round = {line["round"]: line for line in lines}
            names = dict.fromkeys(name for line in by_round.values() for name in line if name != "round")
            more["watched"] = {name: [by_round[r].get(name) for r in sorted(by_round)] for name in names}
        if self._choices[case.name]:
            more["chosen"] = self._choices[case.name]
        summary = folder.summary()
        self.kept.add(case.name, compact(summary, case.identity, more))
        if case.table != "tuning":
            self._tell(case.name, f"{_scores(self.kept.runs[case.name])}, {summary['seconds']:.0f} s")
            write_atomically(self.out / "results.md", self._table())


WATCHED = "watched.jsonl"
DEFAULT_ROUNDS = Experiment.model_fields["rounds"].default


def _write_watched(watch: Callable[[RunDirectory], Mapping[str, float]], run: RunDirectory, done: RoundReport) -> None:
    """Append to the run's directory what a paper wants to know of each round."""
    with (run.path / WATCHED).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"round": done.round, **watch(run)}) + "\n")


def lines_of(folder: RunDirectory) -> list[ClientRecord]:
    """All that a run has written down."""
    return folder.lines()


def last_validation(folder: RunDirectory) -> dict[str, float]:
    """The clients' mean score on validation samples after the last round, by point; clients without any left out."""
    lines = lines_of(folder)
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


MEASURED = "measured-"
"""How the names of kept lines begin that are a benchmark's and no case's."""


def runs_of(paper: Paper, kept: Results) -> Runs:
    """The kept runs of a paper's cases by row and seed, and what benchmarks have measured, each a row of its own."""
    found: dict[str, dict[int, Summary]] = {
        name: {0: line} for name, line in kept.runs.items() if name.startswith(MEASURED)
    }
    for case in paper.cases:
        run = kept.find(case.name, case.identity)
        if run is not None:
            found.setdefault(case.of, {})[case.seed] = run
    return found


def server_state(folder: Path, kind: type) -> Any:
    """What the server of a finished run knew at the end; `kind` is the class of the method's server state."""
    return Checkpointer(RunDirectory(folder).checkpoint).server(kind)


def server_scores(folder: RunDirectory, prepared: Prepared, kind: type) -> dict[str, float]:
    """What the server's own vector scores on the clients' test samples: their mean, and weighted by their sizes."""
    setup, weights = prepared.setup, server_state(folder.path, kind).weights
    runner = ModelRunner(copy.deepcopy(setup.module), setup.federation.data, setup.objective, setup.task.chance)
    tests = {client: setup.federation.splits[client].test for client in setup.task.clients}
    found = summarise(
        {client: runner.score(weights, test) for client, test in tests.items()},
        {client: len(test) for client, test in tests.items()},
    )
    named = {"server": found["mean"], "server_weighted": found["weighted"]}
    return {name: value for name, value in named.items() if value is not None}


COLUMNS = ("run", "paper", "pre", "post", "ft", "chosen", "seeds", "MB up", "MB down", "as papers count, up", "down",
           "GFLOP", "simulated s", "rounds")  # fmt: skip
"""Of a table: the paper's number, ours at three points, bytes really sent and values only, work, time, rounds."""


def report(paper: Paper, name: str, quick: bool, out: Path, kept: Results, longer: Runs | None = None) -> str:
    """The tables and the claims as markdown. A claim that `longer` runs settle has their verdict."""
    runs = runs_of(paper, kept)
    command = f"sparsona reproduce {name}{' --quick' if quick else ''}"
    done = sum(len(own) for row, own in runs.items() if not row.startswith(MEASURED))
    when = sorted({str(run["date"]) for row in runs.values() for run in row.values()})
    where = sorted({str(run["machine"]) for row in runs.values() for run in row.values()})
    told = f", {' to '.join(dict.fromkeys((when[0], when[-1])))}, {' and '.join(where)}" if when else ""
    lines = [f"# {paper.title}", "", f"`{command}`: {done} of {len(paper.cases)} runs are finished{told}.", ""]
    for table in dict.fromkeys(case.table for case in paper.cases if case.of in runs):
        lines += [f"## {table}", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        rows = {case.of: case for case in paper.cases if case.table == table and case.of in runs}
        lines += [f"| {' | '.join(_row(case, runs))} |" for case in rows.values()]
        lines.append("")
    for title, make in paper.tables.items():
        text = make(runs)
        lines += [f"## {title}", "", text, ""] if text else []
    if paper.claims:
        lines += ["## Claims", "", *verdicts(paper.claims, runs, longer)]
    return "\n".join(lines) + "\n"


def verdicts(claims: Sequence[Claim], runs: Runs, longer: Runs | None = None) -> list[str]:
    """A table with a row for each claim: the verdict, and what it rests on or what would settle it.

    The `longer` runs decide where they can, and the evidence says so.
    """
    lines = ["| claim | verdict | evidence |", "|---|---|---|"]
    for claim in claims:
        found = claim.check(longer or {})
        if longer and found.word != "not run":
            found = Verdict(found.word, f"the longer runs: {found.note}")
        else:
            found = claim.check(runs)
        note = "; ".join(filter(None, (found.note, claim.cost if found.word == "not run" else "")))
        lines.append(f"| {claim.text} | {found.word} | {note} |")
    return lines


BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
"""What stands between these lines of a card is made of the kept results."""


def card(names: Sequence[str], results: Path, text: str) -> str:
    """A card with its tables and verdicts made anew of the kept results of these papers, `quick` and whole."""
    parts = []
    for name in names:
        whole = Results.read(results_file(results, name, quick=False))
        longer = runs_of(PAPERS.get(name)(False), whole) if whole.runs and _same_claims(name) else {}
        for quick in (True, False):
            kept = Results.read(results_file(results, name, quick))
            if kept.runs or quick:
                paper = PAPERS.get(name)(quick)
                if paper.study is not None:
                    body = paper.study.report(kept.runs) if kept.runs else "Nothing has been run."
                    parts += [f"## {paper.title}", "", body.replace("\n## ", "\n### ").strip(), ""]
                    continue
                shown = paper if quick or not _same_claims(name) else replace(paper, claims=())
                body = report(shown, name, quick, Path(), kept, longer if quick else {}).partition("\n\n")[2]
                parts += [f"## {paper.title}", "", body.replace("\n## ", "\n### ").strip(), ""]
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"the card has no lines {BEGIN!r} and {END!r}: add them where the tables shall stand")
    return f"{before}{BEGIN}\n\n" + "\n".join(parts) + f"\n{END}{after}"


def _same_claims(name: str) -> bool:
    """Whether the whole has no claims of its own beside those of `quick`."""
    small, whole = ([claim.text for claim in PAPERS.get(name)(quick).claims] for quick in (True, False))
    return small == whole


def _row(case: Case, runs: Runs) -> list[str]:
    own = runs[case.of]
    first = own[min(own)]
    counts = [first[count][way] / 1e6 for count in ("bytes", "paper_bytes") for way in ("up", "down")]
    picked = [f"{key.rpartition('.')[2]} {value:g}" for key, value in first.get("chosen", {}).items()]
    return [
        case.of,
        number(case.paper),
        *(spread(list(values(runs, case.of, point).values())) for point in ("pre", "post", "ft")),
        ", ".join(picked) or "-",
        str(len(own)),
        *(f"{count:,.3f}" for count in counts),
        f"{first['flops'] / 1e9:,.0f}",
        f"{first['simulated_seconds']:,.0f}",
        str(first["rounds"]),
    ]


def spread(found: Sequence[float]) -> str:
    """A mean with its 95 % interval; of a single number no interval.

    >>> spread([0.5, 0.6]), spread([0.25]), spread([])
    ('0.5500 ± 0.6353', '0.2500', '-')
    """
    if not found:
        return "-"
    told = interval(found)
    return f"{told.value:.4f}" + (f" ± {told.high - told.value:.4f}" if told.seeds > 1 else "")


def _scores(summary: Summary) -> str:
    return ", ".join(f"{point} {number(score(summary, point))}" for point in ("pre", "post"))


def number(value: float | None) -> str:
    """A score with four digits; a dash for none."""
    return "-" if value is None else f"{value:.4f}"
