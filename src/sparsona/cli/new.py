"""``new``: templates of plug-in packages."""

from pathlib import Path
from typing import Annotated

import typer

from sparsona.cli.app import group, out

new = group("new", "Write a package for a method of your own.")


@new.callback()
def _group() -> None:
    """Write a package for a method of your own."""


@new.command()
def method(
    name: Annotated[str, typer.Argument(help="the method's name on the command line, as in my-method")],
    folder: Annotated[Path | None, typer.Option("--out", help="the new folder [NAME]")] = None,
) -> None:
    """Write a package with a method, its entry point and a test."""
    from sparsona.skeleton import new_method

    folder = folder or Path(name)
    for file in new_method(name, folder):
        out.print(f"wrote {file}", soft_wrap=True, highlight=False)
    out.print(f"next: cd {folder} && pip install --no-deps --editable . && python -m pytest", soft_wrap=True)
