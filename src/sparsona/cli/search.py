"""``tune`` and ``choose``: searches that look at validation data only."""

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
    from sparsona.report import searched as show
    from sparsona.studies import tuning
    from sparsona.studies.calls import make_search
    from sparsona.studies.contest import Contest

    shared = options.settings({})
    first = shared.pop("seed", 0)
    folder = folder or folder_for(stem(f"tune-{method}", str(shared.get("data", "digits")), first), resume)
    asked = Contest((method,), tuple(range(first, first + seeds)), shared, tuple(options.set or ()))
    target = tuning.Target(target_mb, target_score)
    searched = tuple(knobs.split(",")) if knobs else ()
    watch = show.trial_lines(err, trials, quiet)
    with resumable(folder / "study.json", f"the same command, --resume and --out {quote(str(folder))}"):
        found = make_search(asked, searched, target, trials, folder, resume, watch)
    front = tuning.front(list(found.trials), found.higher_is_better)
    out.print(show.front_table(front, found.chosen, found.metric))
    out.print(show.verdict(found.chosen, target, found.met, found.metric), soft_wrap=True, highlight=False)
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
    from sparsona.report import searched as show
    from sparsona.studies.calls import make_choice
    from sparsona.studies.choosing import Limits
    from sparsona.studies.contest import Contest

    shared = options.settings({})
    first = shared.pop("seed", 0)
    folder = folder or folder_for(stem("choose", str(shared.get("data", "digits")), first), resume)
    asked = Contest(tuple(methods or ()), tuple(range(first, first + seeds)), shared, tuple(options.set or ()))
    status = show.race_status(err, quiet)
    with resumable(folder / "study.json", f"the same command, --resume and --out {quote(str(folder))}"), status as say:
        found = make_choice(asked, Limits(mb_per_round, seconds), folder, resume, say)
    show.print_answer(out, found.answer, found.notes)
    out.print(f"results: {folder}", soft_wrap=True, highlight=False)
    out.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
