"""The command line, one file per group of commands. It reads arguments and prints; the work is done elsewhere.

A command imports what it needs when it is called: lists, rejected commands and `sparsona --help` start without torch.
"""

import logging
import sys
from collections.abc import Sequence
from inspect import signature
from typing import Any

import typer

from sparsona.cli import data, deploy, inspect, new, node, plugins, run, server, studies, watch
from sparsona.cli.app import app
from sparsona.cli.options import RunCommand, takes_run_options
from sparsona.errors import SparsonaError, one_line
from sparsona.terminal import LineFormatter

__all__ = ["app", "main"]

COMMANDS: dict[str, tuple[Any, ...]] = {
    "Run": (run.run, studies.compare, studies.demo, studies.sweep),
    "Choose": (
        studies.choose, studies.tune, inspect.methods, inspect.settings, inspect.report, inspect.draw, watch.watch,
        data.data,
    ),
    "Use a model": (inspect.export, inspect.predict),
    "Network": (inspect.wire, deploy.deploy, server.server, node.node),
    "Extend": (new.new,),
}  # fmt: skip
"""The commands per panel of `sparsona --help`; plug-ins follow."""

for panel, commands in COMMANDS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        elif "options" in signature(command).parameters:
            app.command(cls=RunCommand, rich_help_panel=panel)(takes_run_options(command))
        else:
            app.command(rich_help_panel=panel)(command)
plugins.add_to(app)


def main() -> None:
    """The entry point: a problem is one line on standard error and exit code 2."""
    if logging.lastResort is not None:  # what is logged without a handler goes to the terminal, too
        logging.lastResort.setFormatter(LineFormatter())
    try:
        code = app(prog_name="sparsona", standalone_mode=False)
    except SparsonaError as error:
        _fail(str(error))
    except UsageError as error:
        _fail_usage(error)
    except typer.Abort as stop:
        if isinstance(stop.__cause__, EOFError):  # a mistake of ours, with its traceback
            raise
        sys.exit(130)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        kept = "; if rounds were finished they are kept, continue with --resume" if _resumable(sys.argv[1:]) else ""
        _fail(f"cannot read or write{where}: {error.strerror}{kept}")
    else:
        sys.exit(code or 0)  # that of typer.Exit; no command returns anything


UsageError: Any = typer.BadParameter.__bases__[0]
"""The error of options and arguments that do not fit; typer exports it under no name."""


def _fail_usage(error: Any) -> None:
    if error.message.startswith("Usage:"):  # a group of commands without one: its help
        print(error.message, file=sys.stderr)
        sys.exit(2)
    text = error.format_message().removesuffix(".")
    where = error.ctx.command_path if error.ctx is not None else "sparsona"
    _fail(f"{text[:1].lower()}{text[1:]}; {where} --help shows what there is{plugins.hint(text)}")


def _resumable(words: Sequence[str]) -> bool:
    """True if the command of these words has --resume."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    command = next((commands[word] for word in words if word in commands), None)
    return command is not None and any("--resume" in parameter.opts for parameter in command.params)


def _fail(message: str) -> None:
    print(f"sparsona: {one_line(message)}", file=sys.stderr)
    sys.stdout.flush()
    sys.exit(2)
