"""``compare`` and ``demo``: several methods on the same clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from sparsona.cli.app import err, out
from sparsona.cli.folders import folder_for, resumable, stem
from sparsona.cli.options import RunOptions
from sparsona.errors import InputError
from sparsona.methods import METHODS
from sparsona.words import counted

if TYPE_CHECKING:
    from sparsona.prepare import Prepared

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
    quiet: Annotated[bool, typer.Option("--quiet", help="no live table")] = False,
) -> None:
    """Run several methods on the same clients and compare them.

    Each method runs once per seed. The command prints scores and costs and writes an HTML report. local and fedavg-ft
    are always included, and on tables alone-trees, alone-linear and naive.
    """
    methods = methods or []
    for name in methods:
        if methods.count(name) > 1:
            raise InputError(f"{name} is named twice: name it once, or with settings of its own, {name}:lr=0.01")
    for name in methods:
        METHODS.check(name.partition(":")[0])
    if not methods and not resume:
        raise InputError("compare what? give methods: sparsona methods lists them")
    from sparsona.report import compared as show
    from sparsona.report.searched import print_answer
    from sparsona.report.words import chosen_rates, runaway
    from sparsona.runs.budget import Budget
    from sparsona.studies.calls import run_comparison
    from sparsona.studies.contest import Contest, ContestWatcher, read_contest

    shared = options.settings({})
    first = shared.pop("seed", 0)
    folder = folder or folder_for(stem("compare", str(shared.get("data", "digits")), first), resume)
    there = read_contest(folder) if resume and (folder.exists() or not methods) else None
    if there is not None:
        first = there.seeds[0]
    count = seeds or (len(there.seeds) if there else 5)
    asked = Contest(
        tuple(dict.fromkeys(methods)),
        tuple(range(first, first + count)),
        shared,
        tuple(options.set or ()),
        Budget(budget_mb, budget_seconds),
    )
    title = ""

    @contextmanager
    def shown(contest: Contest, prepared: Prepared) -> Iterator[ContestWatcher]:
        nonlocal title
        experiment, (begin, *_, end) = prepared.experiment, (contest.seeds[0], contest.seeds[-1])
        size = f"{counted(experiment.clients, 'client')}, {experiment.partition}, {counted(contest.rounds, 'round')}"
        title = f"{experiment.data}, {size}, {f'seeds {begin} to {end}' if end > begin else f'seed {begin}'}"
        metric = prepared.setup.objective.metric_name
        with show.LiveTable(err, contest.contenders, len(contest.seeds), metric, contest.budget, quiet) as live:
            yield ContestWatcher(live.started, live.round, live.ended)

    with resumable(folder / "study.json", f"sparsona compare --resume --out {quote(str(folder))}"):
        study = run_comparison(asked, folder, resume, shown)
    for name, reason in study.failed.items():
        err.print(f"{name} left the comparison: {reason}", soft_wrap=True, highlight=False)
    for run in (one for group in study.groups.values() for one in group):
        if warning := runaway(run.loss):
            err.print(f"{run.path.name}: {warning}", soft_wrap=True, highlight=False)
    show.print_comparison(out, study.comparison, title, study.budget)
    if rates := chosen_rates(study.groups):
        out.print(rates, soft_wrap=True, highlight=False, style="dim")
    for one in (one for one, lines in study.pools.items() if lines):
        out.print(f"{one}, seed {first}: what each expert adds", highlight=False, style="bold")
        out.print("\n".join(study.pools[one]), soft_wrap=True, highlight=False, markup=False)
    if study.answer is not None:
        print_answer(out, study.answer, ())
    out.print(f"results: {folder}", soft_wrap=True, highlight=False)
    out.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)


def demo(
    rounds: Annotated[int, typer.Option(min=1, help="rounds of each run")] = 30,
    seeds: Annotated[int, typer.Option(min=1, help="number of seeds")] = 3,
) -> None:
    """Run all five systems and three baselines on handwritten digits."""
    landed = [name for name in SYSTEMS if name in METHODS.names()]
    compare(RunOptions(rounds=rounds), ["local", "fedavg", "fedavg-ft", *landed], seeds=seeds)
