"""Commands that other distributions add, through the entry-point group ``sparsona.commands``.

An entry point names a command and the function behind it, which is declared as typer wants it::

    [project.entry-points."sparsona.commands"]
    hello = "my_package.commands:hello"
"""

import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from sparsona.errors import InputError

GROUP = "sparsona.commands"
KNOWN = {"reproduce": "sparsona-papers", "card": "sparsona-papers"}
"""Commands of known distributions, for the error if they are not installed."""


PANEL = "Plug-ins"
"""The section of `sparsona --help` that lists these commands."""


def add_to(app: typer.Typer) -> None:
    """Add the commands of plug-ins to the application, but replace none.

    A command that does not load prints its reason when it is called, so that all other commands still work.
    """
    taken = {str(known.name or getattr(known.callback, "__name__", "")) for known in app.registered_commands}
    for point in entry_points(group=GROUP):
        if point.name in taken:
            continue
        try:
            command = point.load()
        except Exception as error:  # noqa: BLE001  # a plug-in may raise anything
            app.command(point.name, rich_help_panel=PANEL, context_settings={"ignore_unknown_options": True})(
                _broken(point, error)
            )
        else:
            app.command(point.name, rich_help_panel=PANEL)(command)


def hint(problem: str) -> str:
    """Return the package to install, if the problem is an unknown command of a known distribution.

    >>> hint("No such command 'card'"), hint("No such command 'cart'")
    ('; it comes with sparsona-papers: pip install sparsona-papers', '')
    """
    named = re.match(r"No such command '([^']*)'", problem)
    package = KNOWN.get(named[1]) if named else None
    return f"; it comes with {package}: pip install {package}" if package else ""


def _broken(point: EntryPoint, error: Exception) -> Callable[..., None]:
    """Return a command that takes any arguments and prints why it does not load."""
    reason = f"the command {point.name!r} ({point.value}) does not load: {error or type(error).__name__}"

    def broken(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        """(does not load; call it to see why)"""
        raise InputError(f"{reason}; install its distribution again, or remove it")

    return broken
