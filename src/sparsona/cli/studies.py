"""``compare``, ``demo``, ``sweep``, ``tune`` and ``choose``: studies of several runs."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from sparsona.cli.app import err, out
from sparsona.cli.folders import folder_for, resumable, stem
from sparsona.cli.options import RunOptions
from sparsona.errors import InputError
from sparsona.methods import METHODS

SYSTEMS = ("fedpse", "pfednet", "spfl", "plga", "fedspa", "pfedgate")


def compare(
    options: RunOptions,
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD...", help="methods to run side by side, with settings of their own: fedprox:mu=1"
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="number of seeds, from --seed on [5]")] = None,
    budget_mb: Annotated[
        float | None, typer.Option(min=0, help="end a run when all clients together have exchanged N MB")
    ] = None,
    budget_seconds: Annotated[float | None, typer.Option(min=0, help="end a run after N simulated seconds")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/compare-DATA-SEED]")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the study in --out; methods and seeds may be added")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="hide the progress")] = False,
) -> None:
    """Run several methods on the same clients and compare them.

    Each method runs once per seed. The command prints scores and costs and writes an HTML report. local and fedavg-ft
    are always included, and on tables alone-trees, alone-linear and naive.
    """
    methods = methods or []
    for name in methods:
        if methods.count(name) > 1:
            raise InputError(f"{name} is named twice: name it once, or with settings of its own, {name}:lr=0.01")
        METHODS.check(name.partition(":")[0])
    if not methods and not resume:
        raise InputError("compare what? give methods: sparsona methods lists them")
    from sparsona.report import compared as show
    from sparsona.report.words import chosen_rates, runaway
    from sparsona.studies.calls import compare as compared

    shared = options.settings({})
    folder = folder or folder_for(stem("compare", str(shared.get("data", "digits")), shared.get("seed", 0)), resume)
    with resumable(folder / "study.json", f"sparsona compare --resume --out {quote(str(folder))}"):
        study = compared(
            methods, seeds=seeds, budget_mb=budget_mb, budget_seconds=budget_seconds, out=folder, resume=resume,
            set=options.set or (), progress=False if quiet else "lines", **shared,
        )  # fmt: skip
    for name, reason in study.failed.items():
        err.print(f"{name} left the comparison: {reason}", soft_wrap=True, highlight=False)
    for run in (one for group in study.groups.values() for one in group):
        if warning := runaway(run.loss):
            err.print(f"{run.path.name}: {warning}", soft_wrap=True, highlight=False)
    show.print_comparison(out, study.comparison, study.title, study.budget)
    if rates := chosen_rates(study.groups):
        out.print(rates, highlight=False, style="dim")
    for one in (one for one, lines in study.pools.items() if lines):
        out.print(f"{one}, seed {study.groups[one][0].seed}: what each expert adds", highlight=False, style="bold")
        out.print("\n".join(study.pools[one]), soft_wrap=True, highlight=False, markup=False)
    if study.answer is not None:
        show.print_answer(out, study.answer, ())
    out.print(f"results: {folder}", soft_wrap=True, highlight=False)
    out.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)


def demo(
    rounds: Annotated[int, typer.Option(min=1, help="rounds of each run")] = 30,
    seeds: Annotated[int, typer.Option(min=1, help="number of seeds")] = 3,
) -> None:
    """Run all five systems and three baselines on handwritten digits."""
    landed = [name for name in SYSTEMS if name in METHODS.names()]
    compare(RunOptions(rounds=rounds), ["local", "fedavg", "fedavg-ft", *landed], seeds=seeds)


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
    from sparsona.report import compared as show
    from sparsona.studies.calls import sweep as swept
    from sparsona.studies.sweep import Sweep, chosen_settings, parse_over, swept_runs

    if folder is None and what is None:
        raise InputError("continue which sweep? give its folder with --out")
    folder = folder or folder_for(f"sweep-{file.stem}", resume)
    with resumable(folder / "sweep.json", f"sparsona sweep --resume --out {quote(str(folder))}"):
        study = swept(
            what or "", over=parse_over(over or ()), out=folder, resume=resume, set=options.set or (),
            progress=False if quiet else "lines", **options.settings({}),
        )  # fmt: skip
    for name, reason in study.failed.items():
        err.print(f"{name} failed: {reason}", soft_wrap=True, highlight=False)
    runs = swept_runs(Sweep.read(folder), folder)
    if not runs:
        raise InputError("no run of the sweep was finished: see the lines above")
    chosen = chosen_settings(runs) if choose_by else None
    out.print(show.swept_table(runs, chosen))
    show.write_swept(folder / "sweep.csv", runs, chosen)
    out.print(f"results: {folder}", soft_wrap=True, highlight=False)
    out.print(f"one line per run: {folder / 'sweep.csv'}", soft_wrap=True, highlight=False)
    if study.failed:
        raise typer.Exit(2)


def tune(
    options: RunOptions,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="the method to tune")],
    target_mb: Annotated[
        float | None, typer.Option(min=0, help="find the best score for N MB, up and down, of all clients together")
    ] = None,
    target_score: Annotated[
        float | None,
        typer.Option(
            "--target-score",
            "--target-accuracy",
            help="find the fewest bytes for this score on validation data (0.9: 90 %)",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="number of settings to try")] = 20,
    knobs: Annotated[
        str | None, typer.Option(help="settings to search, with commas [lr and the method's own options]")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="number of seeds that a trial averages, from --seed on")] = 1,
    folder: Annotated[
        Path | None, typer.Option("--out", help="folder of the trials [runs/tune-METHOD-DATA-SEED]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the trials in --out")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no line for each trial")] = False,
) -> None:
    """Search a method's settings on validation data.

    The search finds the best score. With a target it finds the best score for a number of bytes, or the fewest bytes
    for a score.
    """
    METHODS.check(method)
    if target_mb is not None and target_score is not None:
        raise InputError("tune towards what? give --target-mb or --target-score, not both")
    from sparsona.report import compared as show
    from sparsona.studies.calls import tune as tuned

    shared = options.settings({})
    name = stem(f"tune-{method}", str(shared.get("data", "digits")), shared.get("seed", 0))
    folder = folder or folder_for(name, resume)
    with resumable(folder / "study.json", f"the same command, --resume and --out {quote(str(folder))}"):
        found = tuned(
            method, target_mb=target_mb, target_score=target_score, trials=trials,
            knobs=knobs.split(",") if knobs else (), seeds=seeds, out=folder, resume=resume, set=options.set or (),
            progress=False if quiet else "lines", **shared,
        )  # fmt: skip
    out.print(show.front_table(found))
    out.print(show.verdict(found), soft_wrap=True, highlight=False)
    out.print(found.command, soft_wrap=True, highlight=False)


def choose(
    options: RunOptions,
    methods: Annotated[
        list[str] | None, typer.Argument(metavar="[METHOD]...", help="who takes part [every method]")
    ] = None,
    mb_per_round: Annotated[
        float | None, typer.Option(min=0, help="MB that a client may send and get in a round")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="simulated seconds that the training may take")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds each method runs with, from --seed on")] = 1,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/choose-DATA-SEED]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the race in --out")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no line for each run")] = False,
) -> None:
    """Race methods on your data and recommend one, with an HTML report.

    On tables, pools of boosted trees and a shared model take part, too."""
    for name in methods or []:
        METHODS.check(name.partition(":")[0])
    from sparsona.report import compared as show
    from sparsona.studies.calls import choose as chosen

    shared = options.settings({})
    name = stem("choose", str(shared.get("data", "digits")), shared.get("seed", 0))
    folder = folder or folder_for(name, resume)
    with resumable(folder / "study.json", f"the same command, --resume and --out {quote(str(folder))}"):
        found = chosen(
            methods or (), mb_per_round=mb_per_round, seconds=seconds, seeds=seeds, out=folder, resume=resume,
            set=options.set or (), progress=False if quiet else "lines", **shared,
        )  # fmt: skip
    show.print_answer(out, found.answer, found.notes)
    out.print(f"results: {folder}", soft_wrap=True, highlight=False)
    out.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
