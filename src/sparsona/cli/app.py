"""The application to which every group adds its commands, and the two consoles that they print to."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from sparsona.version import __version__

app = typer.Typer(
    help="Sparse, personalised federated learning over thin networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = Console()
err = Console(stderr=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Sparse, personalised federated learning over thin networks."""
