"""``reproduce`` and ``card``: the papers' experiments, as commands of ``sparsona``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sparsona.cli.app import err, out
from sparsona.errors import InputError

if TYPE_CHECKING:
    from sparsona_papers._paper import Size


def reproduce(
    paper: Annotated[str, typer.Argument(help="the paper, such as fedpse; an unknown name lists them all")],
    size: Annotated[
        str,
        typer.Option(
            help="quick: short runs; day: the rows that decide most, longer; whole: every row, as long or longer;"
            " paper: its own data, nets and lengths, for a cluster"
        ),
    ] = "whole",
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/reproduce-PAPER]")] = None,
    only: Annotated[str, typer.Option(help="the runs whose names, or rows, match this pattern")] = "*",
    results: Annotated[Path | None, typer.Option(help="folder of the kept results [that of --out]")] = None,
    again: Annotated[bool, typer.Option("--again", help="run also what is kept in --results, trials included")] = False,
    seeds_from: Annotated[
        int | None, typer.Option(min=1, help="use other seeds, beginning with this one; kept in files of their own")
    ] = None,
    engine: Annotated[str, typer.Option(help="where runs are made: auto, inprocess, pool, ray")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="how many cores are used [0: all]")] = 0,
    ray_address: Annotated[str, typer.Option(metavar="HOST:PORT", help="the Ray cluster, for --engine ray")] = "",
    gpus_per_worker: Annotated[float, typer.Option(min=0, help="on Ray: the share of a GPU that a run has")] = 0.0,
    dry: Annotated[bool, typer.Option("--tables", help="run nothing: make the tables of what is kept")] = False,
    left: Annotated[bool, typer.Option("--left", help="run nothing: count the runs that are not kept, by row")] = False,
) -> None:
    """Run a paper's experiments and compare its numbers with ours.

    An interrupted command continues where it stopped.

    Runs are made side by side, one per core, with --engine ray on all nodes of a cluster; --engine pool makes them one
    by one.

    One line per run is kept in --results. Tables and verdicts are made from it, and the run is not made again.
    """
    from sparsona.federation.resources import Cluster, Resources
    from sparsona_papers import reproduce as papers

    asked = cast("Size", size)
    seeds = "" if seeds_from is None else f"-seeds-{seeds_from}"
    target = folder or Path("runs") / f"reproduce-{paper}{'' if size == 'whole' else f'-{size}'}{seeds}"
    if left:
        if again or dry:
            raise InputError("--left runs nothing and counts what is not kept: leave --again and --tables out")
        for line in papers.left(paper, asked, only, results or target, seeds_from).lines():
            out.print(line, soft_wrap=True, highlight=False)
        return
    try:
        table = papers.reproduce(
            paper,
            asked,
            target,
            only,
            say=lambda text: err.print(text, soft_wrap=True),
            run=not dry,
            results=results or target,
            again=again,
            engine=engine,
            resources=Resources(workers, Cluster(ray_address, gpus_per_worker)),
            seeds_from=seeds_from,
        )
    except KeyboardInterrupt:
        err.print("interrupted: the same command goes on", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    out.print(f"results: {table}", soft_wrap=True)


def card(
    file: Annotated[Path, typer.Argument(help="the card, such as papers/cards/fedpse.md")],
    names: Annotated[list[str], typer.Argument(help="the papers whose results stand in it")],
    results: Annotated[Path, typer.Option(help="folder of the kept results")] = Path("papers/results"),
) -> None:
    """Write the tables, verdicts and chart of a paper's card.

    They are made from the kept results; the text around them stays."""
    from sparsona.files import write_atomically
    from sparsona_papers import reproduce as papers

    write_atomically(file, papers.card(names, results, file.read_text(encoding="utf-8")))
    out.print(f"card: {file}", soft_wrap=True)
    if picture := papers.chart(file):
        out.print(f"chart: {picture}", soft_wrap=True)
