"""``sweep``: one experiment with every combination of some settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from sparsona.cli.app import err, out
from sparsona.cli.folders import folder_for, resumable
from sparsona.cli.options import RunOptions
from sparsona.errors import InputError
from sparsona.methods import METHODS


def sweep(
    options: RunOptions,
    what: Annotated[
        str | None,
        typer.Argument(metavar="METHOD|experiment.toml", help="a method, or an experiment file [that of --out]"),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,...", help="a setting and its values, or FROM:TO; again for another setting"),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/sweep-NAME]")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the sweep in --out; values may be added with --over")
    ] = False,
    choose_by: Annotated[
        str | None,
        typer.Option(metavar="validation", help="choose each method's setting on validation rows; test only that"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="hide the progress")] = False,
) -> None:
    """Run every combination of some settings and print one table.

    sparsona sweep experiment.toml --over method=fedavg,fedpse --over seed=0:5
    """
    if what is None and not resume:
        raise InputError("sweep what? give a method or an experiment file, and --over KEY=A,B,...")
    if what is not None and not over and not resume:
        raise InputError("sweep over what? give --over KEY=A,B,..., such as --over seed=0:5")
    file = Path(what or "")
    if what is not None and file.suffix != ".toml":
        METHODS.check(what)
    if choose_by not in (None, "validation"):
        raise InputError(f"--choose-by {choose_by}: choices are made on validation rows only, --choose-by validation")
    from sparsona.experiment import read
    from sparsona.report import swept as show
    from sparsona.studies.calls import make_sweep
    from sparsona.studies.sweep import Sweep, SweepWatcher, chosen_settings, declare, parse_over, swept_runs

    if folder is None and what is None:
        raise InputError("continue which sweep? give its folder with --out")
    folder = folder or folder_for(f"sweep-{file.stem}", resume)
    base: dict[str, Any] = {}
    if what is not None:
        base = read(file) if file.suffix == ".toml" else {"method": what}
    asked = Sweep(options.settings(base), parse_over(over or ()), tuple(options.set or ()))

    @contextmanager
    def shown(declared: Sweep) -> Iterator[SweepWatcher]:
        with show.SweepProgress(err, len(list(declared.points())), quiet) as progress:
            yield SweepWatcher(progress.started, progress.round, progress.ended)

    with resumable(folder / "sweep.json", f"sparsona sweep --resume --out {quote(str(folder))}"):
        study = make_sweep(asked, folder, resume, shown)
    for name, reason in study.failed.items():
        err.print(f"{name} failed: {reason}", soft_wrap=True, highlight=False)
    runs = swept_runs(declare(folder, asked, True), folder)
    if not runs:
        raise InputError("no run of the sweep was finished: see the lines above")
    chosen = chosen_settings(runs) if choose_by else None
    out.print(show.swept_table(runs, chosen))
    show.write_swept(folder / "sweep.csv", runs, chosen)
    out.print(f"results: {folder}", soft_wrap=True, highlight=False)
    out.print(f"a line a run: {folder / 'sweep.csv'}", soft_wrap=True, highlight=False)
    if study.failed:
        raise typer.Exit(2)
