"""The papers' experiments, one file a paper: which runs there are, what the paper says, what came out.

:func:`reproduce` runs them one after another, the cheap ones first. A run that is finished is not run again and one
that was interrupted is continued, so the command can be stopped and started at will.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeAlias

from sparsona.api import execute
from sparsona.errors import InputError
from sparsona.files import write_atomically
from sparsona.prepare import prepare
from sparsona.registry import Registry
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport

Summary: TypeAlias = Mapping[str, Any]
"""What summary.json of a run holds."""


@dataclass(frozen=True)
class Case:
    """One run: its directory's name, the table it stands in, the settings, and the paper's number for it, if any.

    `cost` orders the cases: the samples that it trains on, or anything that grows with its time.
    """

    name: str
    table: str
    settings: Mapping[str, Any]
    paper: float | None = None
    cost: float = 0.0


Check: TypeAlias = Callable[[Mapping[str, Summary]], bool | None]
"""A test on the summaries by case; None where a run is missing."""


@dataclass(frozen=True)
class Claim:
    """Something the paper says, or what one would say against it, and the test of it."""

    text: str
    check: Check


@dataclass(frozen=True)
class Paper:
    """A paper's runs, its claims, and its drawings: each takes the folder of the runs and the file to write."""

    title: str
    cases: Sequence[Case]
    claims: Sequence[Claim] = ()
    drawings: Mapping[str, Callable[[Path, Path], bool]] = field(default_factory=dict)


PAPERS: Registry[Callable[[bool], Paper]] = Registry("paper", __name__)
"""A paper is a function of `quick`: whether to make do with what a small machine runs within the hour."""


def reproduce(
    name: str, quick: bool, out: Path, only: str = "*", say: Callable[[str], None] = print, run: bool = True
) -> Path:
    """Run a paper's cases whose names match `only` into `out`, and write results.md there. Returns that file.

    With `run` false nothing is run: the table is made of the runs that are there.
    """
    paper = PAPERS.get(name)(quick)
    chosen = sorted((c for c in paper.cases if fnmatch(c.name, only)), key=lambda case: case.cost)
    if not chosen:
        raise InputError(
            f"no case of {name} is called {only!r}; there are {', '.join(c.name for c in paper.cases[:5])}, ..."
        )
    table = out / "results.md"
    out.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(chosen if run else (), 1):
        title = f"[{number}/{len(chosen)}] {case.name}"
        summary = _run(case, RunDirectory(out / case.name), lambda text, title=title: say(f"{title}: {text}"))  # type: ignore[misc]
        say(f"{title}: {_scores(summary)}, {summary['seconds']:.0f} s")
        write_atomically(table, report(paper, name, quick, out))
    write_atomically(table, report(paper, name, quick, out))
    for file, draw in paper.drawings.items():
        if draw(out, out / file):
            say(f"drawn: {out / file}")
    return table


def _run(case: Case, folder: RunDirectory, say: Callable[[str], None]) -> Summary:
    """The summary of a case: of the finished run, or of the run that is made or continued now."""
    if folder.summary_file.exists():
        return folder.summary()
    prepared = prepare(case.settings, origin=f"the case {case.name}")

    def progress(done: RoundReport) -> None:
        if done.scores:
            say(f"round {done.round} of {prepared.experiment.rounds}")

    return execute(prepared, folder, folder.experiment_file.exists(), progress).summary


def finished(paper: Paper, out: Path) -> dict[str, Summary]:
    """The summaries of the cases that are done, by name."""
    folders = {case.name: RunDirectory(out / case.name) for case in paper.cases}
    return {name: folder.summary() for name, folder in folders.items() if folder.summary_file.exists()}


def score(summary: Summary, point: str) -> float | None:
    """The mean over the clients at an evaluation point, None where it was not measured."""
    scores: Mapping[str, Any] = summary[summary["metric"]].get(point) or {}
    value: float | None = scores.get("mean")
    return value


def higher(one: str, other: str, point: str = "pre", other_point: str = "") -> Check:
    """Whether the run `one` scores higher than `other`, at the same point unless another is named."""

    def check(done: Mapping[str, Summary]) -> bool | None:
        if one not in done or other not in done:
            return None
        a, b = score(done[one], point), score(done[other], other_point or point)
        return None if a is None or b is None else a > b

    return check


def server_state(folder: Path, kind: type) -> Any:
    """What the server of a finished run knew at the end; `kind` is the class of the method's server state."""
    return Checkpointer(RunDirectory(folder).checkpoint).server(kind)


COLUMNS = ("run", "paper", "pre", "post", "ft", "MB up", "MB down", "as papers count, up", "down", "GFLOP",
           "simulated s", "rounds")  # fmt: skip
"""Of a table: the paper's number, ours at three points, bytes really sent and values only, work, time, rounds."""


def report(paper: Paper, name: str, quick: bool, out: Path) -> str:
    """The tables and the claims as markdown."""
    done = finished(paper, out)
    command = f"sparsona reproduce {name}{' --quick' if quick else ''} --out {out}"
    lines = [f"# {paper.title}", "", f"`{command}`: {len(done)} of {len(paper.cases)} runs are finished.", ""]
    for table in dict.fromkeys(case.table for case in paper.cases if case.name in done):
        lines += [f"## {table}", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        for case in (c for c in paper.cases if c.table == table and c.name in done):
            lines.append(f"| {' | '.join(_row(case, done[case.name]))} |")
        lines.append("")
    if paper.claims:
        lines += ["## Claims", "", "| claim | holds here |", "|---|---|"]
        lines += verdicts(paper.claims, done)
    return "\n".join(lines) + "\n"


def verdicts(claims: Sequence[Claim], done: Mapping[str, Summary]) -> list[str]:
    """A row of a table for each claim: whether it holds in these runs."""
    words = {True: "yes", False: "no", None: "not run"}
    return [f"| {claim.text} | {words[claim.check(done)]} |" for claim in claims]


def _row(case: Case, found: Summary) -> list[str]:
    counts = [found[count][way] / 1e6 for count in ("bytes", "paper_bytes") for way in ("up", "down")]
    return [
        case.name,
        _number(case.paper),
        *(_number(score(found, point)) for point in ("pre", "post", "ft")),
        *(f"{count:,.3f}" for count in counts),
        f"{found['flops'] / 1e9:,.0f}",
        f"{found['simulated_seconds']:,.0f}",
        str(found["rounds"]),
    ]


def _scores(summary: Summary) -> str:
    return ", ".join(f"{point} {_number(score(summary, point))}" for point in ("pre", "post"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
