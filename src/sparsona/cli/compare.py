"""``compare`` and ``demo``: several methods on the same clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import err, out
from sparsona.cli.folders import fresh, latest, stem
from sparsona.cli.options import RunOptions, takes_run_options
from sparsona.methods import METHODS

SYSTEMS = ("fedpse", "pfednet", "spfl", "plga", "fedspa", "pfedgate")


def add_to(app: typer.Typer) -> None:
    app.command()(takes_run_options(compare))
    app.command()(demo)


def compare(
    names: Annotated[list[str], typer.Argument(metavar="METHOD...", help="methods to run side by side")],
    options: RunOptions,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/compare-DATA-SEED]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the runs in --out")] = False,
) -> None:
    """Run several methods on the same clients, and end with one table."""
    for name in names:
        METHODS.check(name)
    from sparsona.api import execute
    from sparsona.experiment import assign
    from sparsona.prepare import prepare
    from sparsona.report import console as show
    from sparsona.report import curves
    from sparsona.runs.directory import RunDirectory

    prepared = [
        prepare(assign(options.settings({"method": name}), options.set or ()), origin="the command line")
        for name in names
    ]
    first = prepared[0].experiment
    if folder is None:
        own = stem("compare", first.data, first.seed)
        folder = latest(own) if resume else fresh(own)
    metric, summaries = prepared[0].setup.objective.metric_name, []
    for name, one in zip(names, prepared, strict=True):
        with show.RoundProgress(err, name, one.experiment.rounds, metric, quiet=False) as progress:
            result = execute(one, RunDirectory(folder / name), resume, progress.advance, progress.started)
        summaries.append(result.summary)
    title = f"{first.data}, {first.clients} clients, {first.partition}, {first.rounds} rounds, seed {first.seed}"
    out.print(show.comparison(summaries, title))
    found = {name: curves.marks(folder / name, "pre") for name in names}
    curves.draw(found, folder / "curves.png", "pre", curves.SHOWN, metric)
    out.print(f"results: {folder}, with curves.png", soft_wrap=True)


def demo() -> None:
    """Every system that is here, beside its plainest rivals, on handwritten digits dealt out unevenly."""
    landed = [name for name in SYSTEMS if name in METHODS.names()]
    compare(["local", "fedavg", "fedavg-ft", *landed], RunOptions(rounds=30, engine="pool"))
