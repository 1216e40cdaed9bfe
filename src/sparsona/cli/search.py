"""``tune`` and ``choose``: searches that look at validation data only."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from sparsona.cli.app import err, out
from sparsona.cli.folders import folder_for, resumable, stem
from sparsona.cli.options import RunOptions
from sparsona.errors import InputError
from sparsona.methods import METHODS


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
    from sparsona.experiment import read
    from sparsona.metrics._named import in_percent
    from sparsona.report import searched as show
    from sparsona.report.command import run_command
    from sparsona.runs.directory import RunDirectory
    from sparsona.studies import space, tuning
    from sparsona.studies.contest import Contest, Runs, declare

    found = space.knobs(method, tuple(knobs.split(",")) if knobs else ())
    shared = options.settings({})
    first = shared.pop("seed", 0)
    folder = folder or folder_for(stem(f"tune-{method}", str(shared.get("data", "digits")), first), resume)
    contest = Contest((method,), tuple(range(first, first + seeds)), shared, tuple(options.set or ()))
    runs = Runs(declare(folder, contest, resume), folder, options.tensorboard)
    target = tuning.Target(target_mb, target_score)
    metric = runs.prepare(method, first).setup.objective.metric_name
    if in_percent(metric) and target_score is not None and not 0 <= target_score <= 1:
        raise InputError(f"--target-score {target_score:g} is no share of 1: give 0.9 for 90 %")
    watch = show.trial_lines(err, trials, metric, quiet)
    with resumable(folder / "study.json", f"the same command, --resume and --out {quote(str(folder))}"):
        done, higher = tuning.tune(runs, method, found, target, trials, watch)
    if not done:
        raise InputError("every trial failed: see the lines above, and search other knobs with --knobs")
    chosen, met = tuning.pick(done, target, higher)
    out.print(show.front_table(tuning.front(done, higher), chosen, metric))
    out.print(show.verdict(chosen, target, met, metric), soft_wrap=True, highlight=False)
    settings = read(RunDirectory(runs.path(chosen.contender, first)).experiment_file)
    out.print(run_command(settings), soft_wrap=True, highlight=False)


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
    from sparsona.report import searched as show
    from sparsona.report.clients import pool_lines
    from sparsona.report.html import write_report
    from sparsona.studies import choosing
    from sparsona.studies.contest import POOLS, TABLES, Contest, Runs, declare, ways_alone

    shared = options.settings({})
    first = shared.pop("seed", 0)
    folder = folder or folder_for(stem("choose", str(shared.get("data", "digits")), first), resume)
    names = tuple(dict.fromkeys(methods or [name for name in METHODS.names() if name not in TABLES]))
    contest = Contest(names, tuple(range(first, first + seeds)), shared, tuple(options.set or ())).including()
    contest = declare(folder, contest, resume)
    runs = Runs(contest, folder, options.tensorboard)
    prepared = runs.prepare(contest.contenders[0], first)
    alone = ways_alone(prepared)
    pools = POOLS if not methods and TABLES[0] in alone else ()
    contest = runs.contest = contest.including((*alone, *pools))
    status = show.race_status(err, quiet)
    with resumable(folder / "study.json", f"the same command, --resume and --out {quote(str(folder))}"), status as say:
        history = choosing.race(runs, runs.rounds, choosing.Limits(mb_per_round, seconds), say)
    finalists = [standing.contender for standing in history[-1].standings]
    run_folders = [runs.path(name, seed) for name in finalists for seed in contest.seeds]
    notes = choosing.account(history, prepared.setup.objective.metric_name)
    notes += pool_lines(runs.path(finalists[0], first), prepared.setup.objective.metric_name)
    answer = write_report(run_folders, folder / "report.html", notes=notes, raced=len(contest.contenders))
    show.print_answer(out, answer, notes)
    out.print(f"results: {folder}", soft_wrap=True, highlight=False)
    out.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
