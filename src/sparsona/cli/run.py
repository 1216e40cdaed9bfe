"""``run``: one experiment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from sparsona.cli.app import err, out
from sparsona.cli.folders import fresh, latest, stem
from sparsona.cli.options import RunOptions, takes_run_options
from sparsona.methods import METHODS


def add_to(app: typer.Typer) -> None:
    app.command()(run)


@takes_run_options
def run(
    what: Annotated[str, typer.Argument(metavar="METHOD|experiment.toml", help="a method, or an experiment file")],
    options: RunOptions,
    folder: Annotated[Path | None, typer.Option("--out", help="run directory [runs/METHOD-DATA-SEED]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar, no tables")] = False,
) -> None:
    """Run an experiment: a method by name, or a complete experiment file."""
    file = Path(what)
    if file.suffix != ".toml":
        METHODS.check(what)
    from sparsona.api import execute
    from sparsona.experiment import assign, read
    from sparsona.prepare import prepare
    from sparsona.report import console as show
    from sparsona.report.tensorboard import scalars, told_to
    from sparsona.runs.directory import RunDirectory
    from sparsona.runs.records import RoundReport

    base: dict[str, Any] = read(file) if file.suffix == ".toml" else {"method": what}
    METHODS.check(str(base.get("method", "")))
    prepared = prepare(
        assign(options.settings(base), options.set or ()),
        origin=what if file.suffix == ".toml" else "the command line",
    )
    experiment = prepared.experiment
    if folder is None:
        name = stem(experiment.method, experiment.data, experiment.seed)
        there = RunDirectory.around(file)
        folder = (there.path if there else latest(name)) if resume else fresh(name)
    metric = prepared.setup.objective.metric_name
    try:
        with ExitStack() as stack:
            progress = stack.enter_context(show.RoundProgress(err, experiment.method, experiment.rounds, metric, quiet))
            watchers: list[Callable[[RoundReport], None]] = [progress.advance]
            if options.tensorboard:
                watchers.append(stack.enter_context(scalars(folder)))
            result = execute(prepared, RunDirectory(folder), resume, told_to(watchers), progress.started)
    except KeyboardInterrupt:
        written = RunDirectory(folder).experiment_file
        how = f"continue with sparsona run {quote(str(written))} --resume" if written.exists() else "nothing was done"
        err.print(f"interrupted: {how}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    if not quiet:
        out.print(show.closing(result.summary))
        out.print(show.traffic(result.summary), soft_wrap=True)
        out.print(f"results: {folder}", soft_wrap=True)
