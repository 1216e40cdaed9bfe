"""``reproduce``: the papers' experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from sparsona.cli.app import err, out
from sparsona.errors import InputError


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file to the application."""
    app.command()(reproduce)
    app.command()(card)


def reproduce(
    paper: Annotated[str, typer.Argument(help="whose experiments: the name of a file in sparsona/reproduce")],
    size: Annotated[
        str,
        typer.Option(
            help="quick: short runs; day: the rows that decide most, longer; whole: every row, as long or longer;"
            " paper: its own data, nets and lengths, for a cluster"
        ),
    ] = "whole",
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/reproduce-PAPER]")] = None,
    only: Annotated[str, typer.Option(help="the cases whose names, or rows, match this pattern")] = "*",
    results: Annotated[Path | None, typer.Option(help="folder of the kept results [that of --out]")] = None,
    again: Annotated[bool, typer.Option("--again", help="run also what is kept in --results, trials included")] = False,
    engine: Annotated[str, typer.Option(help="where runs are made: auto, inprocess, pool, ray")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="how many cores are used [0: all]")] = 0,
    ray_address: Annotated[str, typer.Option(metavar="HOST:PORT", help="the Ray cluster, for --engine ray")] = "",
    gpus_per_worker: Annotated[float, typer.Option(min=0, help="on Ray: the share of a GPU that a run has")] = 0.0,
    dry: Annotated[bool, typer.Option("--tables", help="run nothing: make the tables of what is there")] = False,
    left: Annotated[
        bool, typer.Option("--left", help="run nothing: say what is left, and the CPU hours of one core")
    ] = False,
) -> None:
    """Run a paper's experiments and set its numbers beside ours. Stop and start it at will: it continues.

    Runs stand side by side, a core each; with --engine ray on all nodes of a cluster, with --engine pool one by one.

    A line of each run is kept in --results, from which tables and verdicts are made; such a run is not run again.
    """
    from sparsona import reproduce as papers
    from sparsona.federation.resources import Cluster, Resources

    target = folder or Path("runs") / f"reproduce-{paper}{'' if size == 'whole' else f'-{size}'}"
    if left:
        if again or dry:
            raise InputError("--left runs nothing and counts what is not kept: leave --again and --tables out")
        for line in papers.left(paper, cast(papers.Size, size), only, results or target).lines():
            out.print(line, soft_wrap=True, highlight=False)
        return
    try:
        table = papers.reproduce(
            paper,
            cast(papers.Size, size),
            target,
            only,
            say=lambda text: err.print(text, soft_wrap=True),
            run=not dry,
            results=results or target,
            again=again,
            engine=engine,
            resources=Resources(workers, Cluster(ray_address, gpus_per_worker)),
        )
    except KeyboardInterrupt:
        err.print("interrupted: the same command goes on", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    out.print(f"results: {table}", soft_wrap=True)


def card(
    file: Annotated[Path, typer.Argument(help="the card, such as docs/papers/fedpse.md")],
    names: Annotated[list[str], typer.Argument(help="whose results stand in it")],
    results: Annotated[Path, typer.Option(help="folder of the kept results")] = Path("docs/papers/results"),
) -> None:
    """Make a paper's card anew from the kept results: its tables and verdicts; the text around them stays."""
    from sparsona import reproduce as papers
    from sparsona.files import write_atomically

    write_atomically(file, papers.card(names, results, file.read_text(encoding="utf-8")))
    out.print(f"card: {file}", soft_wrap=True)
