"""``run``: one experiment."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsona.cli.app import err, out
from sparsona.cli.folders import folder_for, resumable, stem
from sparsona.cli.options import RunOptions
from sparsona.errors import InputError
from sparsona.methods import METHODS

if TYPE_CHECKING:
    from sparsona.prepare import Prepared
    from sparsona.result import Result


def run(
    options: RunOptions,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="METHOD|experiment.toml", help="a method, or an experiment file; with --resume a run directory"
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="run directory [runs/METHOD-DATA-SEED]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out, as it was begun")] = False,
    add: Annotated[
        bool, typer.Option("--add", help="with --resume: go on with a finished run, with more rows or clients")
    ] = False,
    repeats: Annotated[
        int, typer.Option(min=1, help="repeat the random train/test split N times and pool the scores")
    ] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar, no tables")] = False,
) -> None:
    """Run one experiment: a method by name, or an experiment file."""
    what = _what(what, folder, resume)
    file = Path(what)
    if file.suffix != ".toml":
        METHODS.check(what)
    from sparsona.data.doubts import listed
    from sparsona.experiment import assign, read
    from sparsona.prepare import prepare
    from sparsona.report.console import clients_table, pool_lines
    from sparsona.report.listing import table
    from sparsona.resume import earlier_run
    from sparsona.runs.about import changed_since
    from sparsona.runs.clients import pooled
    from sparsona.runs.directory import RunDirectory

    base: dict[str, Any] = read(file) if file.suffix == ".toml" else {"method": what}
    METHODS.check(str(base.get("method", "")))
    settings = assign(options.settings(base), options.set or ())
    origin = what if file.suffix == ".toml" else "the command line"
    earlier = None
    if add:
        if not resume or repeats > 1:
            raise InputError("--add goes on with a finished run: sparsona run RUN --resume --add --data D --rounds N")
        earlier = earlier_run(RunDirectory(folder or file.parent))
        if options.clients is None:
            settings.pop("clients", None)
    prepared = prepare(settings, earlier=earlier, origin=origin)
    experiment = prepared.experiment
    if folder is None:
        name = stem(experiment.method, experiment.data, experiment.seed)
        there = RunDirectory.around(file)
        folder = there.path if there and resume else folder_for(name, resume)
    repeated = RunDirectory.around(file) if file.suffix == ".toml" and not resume else None
    if repeated is not None and (repeated.path / "about.json").exists() and not quiet:
        for line in changed_since(repeated.path):
            err.print(f"since {repeated.path}: {line}", soft_wrap=True, highlight=False, markup=False)
    if not quiet and (lines := prepared.understood()):
        err.print(table("what was understood", ("", "understood", "decided"), lines))
    for line in listed(prepared.doubts):
        err.print(f"warning: {line}", soft_wrap=True, highlight=False, markup=False)
    if repeats == 1:
        if resume:
            RunDirectory(folder).need_run()
        done = _run_and_show(prepared, folder, resume, quiet, add)
        clients = done.clients
    else:
        if experiment.split.by.startswith("time:"):
            raise InputError("a split by time is one only: drop --repeats, or choose --split random or group:COLUMN")
        several = []
        for number in range(repeats):
            other = {**settings, "split": {**settings.get("split", {}), "repeat": number}}
            prepared = prepare(other, loaded=prepared.loaded, origin=origin)
            place = folder / f"split-{number}"
            again = resume and RunDirectory(place).experiment_file.exists()
            done = _run_and_show(prepared, place, again, quiet)
            several.append(done.clients)
        clients = tuple(pooled(several, done.summary["metric"] == "accuracy", experiment.split.fewest))
    if not quiet:
        if prepared.rows is not None or repeats > 1:
            out.print(clients_table(clients, done.summary["metric"], experiment.split.fewest, repeats))
        for line in pool_lines(folder, done.summary["metric"]) if repeats == 1 else ():
            out.print(line, soft_wrap=True, highlight=False, markup=False)
        if repeated is not None and repeated.summary_file.exists() and repeats == 1:
            same = repeated.summary()["digest"] == done.summary["digest"]
            told = "the same as that of" if same else "another than that of"
            out.print(f"digest: {told} {repeated.path}", soft_wrap=True, highlight=False)
        out.print(f"results: {folder}", soft_wrap=True)


def _what(what: str | None, folder: Path | None, resume: bool) -> str:
    """Return the named method or experiment file; a run directory to resume stands for its file."""
    if what is None and not (resume and folder):
        raise InputError("run what? give a method or an experiment file; to go on with a run, --resume --out FOLDER")
    place = folder if what is None else Path(what)
    assert place is not None
    if what is not None and (not place.is_dir() or what in METHODS.names()):
        if place.suffix != ".toml" and len(place.parts) > 1 and not place.exists():
            raise InputError(f"there is no {what}: give a method, an experiment file, or the folder of a run")
        return what
    file = place / "experiment.toml"
    if not file.is_file():
        raise InputError(f"{place} holds no run: give a method, an experiment file, or the folder of a run")
    if not resume:
        raise InputError(f"{place} holds a run: add --resume to go on with it, or run {file} again with another --out")
    return str(file)


def _run_and_show(prepared: Prepared, folder: Path, resume: bool, quiet: bool, add: bool = False) -> Result:
    from sparsona.api import execute
    from sparsona.rate import settled
    from sparsona.report import console as show
    from sparsona.report.progress import RoundBar
    from sparsona.report.words import no_better_than_constant, runaway
    from sparsona.runs.directory import RunDirectory

    place = RunDirectory(folder)
    if prepared.auto and not quiet and not (resume and place.experiment_file.exists()):
        err.print("choosing the learning rate on validation rows (give one: --set lr=0.1)", highlight=False)
    prepared = settled(prepared, place if resume else None)
    if prepared.search is not None and not quiet:
        err.print(prepared.search.text(), highlight=False)
    experiment = prepared.experiment
    metric = prepared.setup.objective.metric_name
    written = place.experiment_file
    with (
        resumable(written, f"sparsona run {quote(str(written))} --resume"),
        RoundBar(experiment.method, experiment.rounds, metric, False if quiet else "lines") as bar,
    ):
        result = execute(prepared, place, resume, bar.round, add)
    if not quiet:
        out.print(show.closing(result.summary))
        out.print(show.traffic(result.summary), soft_wrap=True)
    for warning in (runaway(result.summary["loss"]), no_better_than_constant(result.summary)):
        if warning:
            err.print(f"{folder}: {warning}", soft_wrap=True, highlight=False)
    return result
