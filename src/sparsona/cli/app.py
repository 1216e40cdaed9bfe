"""The application, to which each file adds its commands, and the two consoles."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sparsona.terminal import PlainConsole
from sparsona.version import __version__


class CommandGroup(TyperGroup):
    """A group that lists its commands by the panel that each was added to, with whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per panel; the summary of a command is the first line of its help."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                panels.setdefault(panel, []).append((name, (command.help or "").partition("\n")[0]))
        for panel in sorted(panels, key=lambda one: PANELS.index(one) if one in PANELS else len(PANELS)):
            with formatter.section(panel):
                formatter.write_dl(panels[panel])


PANELS = ("Run", "Choose", "Use a model", "Network", "Extend")
"""The panels of `sparsona --help`, in their order; plug-ins follow."""


def group(name: str, about: str) -> typer.Typer:
    """Add a command that has sub-commands."""
    return typer.Typer(name=name, cls=CommandGroup, help=about, no_args_is_help=True, rich_markup_mode=None)


app = typer.Typer(
    cls=CommandGroup,
    help="Sparse, personalised federated learning over thin networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = PlainConsole()
err = PlainConsole(stderr=True)


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
