"""``reproduce``: the papers' experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import err, out


def add_to(app: typer.Typer) -> None:
    app.command()(reproduce)


def reproduce(
    paper: Annotated[str, typer.Argument(help="whose experiments: the name of a file in sparsona/reproduce")],
    quick: Annotated[bool, typer.Option("--quick", help="what a small machine runs within the hour")] = False,
    folder: Annotated[Path | None, typer.Option("--out", help="folder of the runs [runs/reproduce-PAPER]")] = None,
    only: Annotated[str, typer.Option(help="the cases whose names match this pattern")] = "*",
) -> None:
    """Run a paper's experiments and set its numbers beside ours. Stop and start it at will: it continues."""
    from sparsona import reproduce as papers

    target = folder or Path("runs") / f"reproduce-{paper}{'-quick' if quick else ''}"
    table = papers.reproduce(paper, quick, target, only, say=lambda text: err.print(text, soft_wrap=True))
    out.print(f"results: {table}", soft_wrap=True)
