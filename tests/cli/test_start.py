"""Starting is cheap, and an option of `run` is declared once."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sparsona.cli import app
from sparsona.cli.app import PANELS
from sparsona.cli.options import RunOptions, declared, keys
from sparsona.experiment import all_settings
from sparsona.version import __version__

HEAVY = {"torch", "scipy", "sklearn", "numba", "pandas", "matplotlib"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        (["compare", "--help"], 0),
        (["--version"], 0),
        (["methods"], 0),
        (["runn"], 2),
        (["run", "fedavgg"], 2),
    ],
)
def test_what_trains_nothing_imports_nothing_heavy(words: list[str], code: int) -> None:
    told = (
        "import sys\n"
        "from sparsona.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: code = stop.code or 0\n"
        "print('LOADED', code, *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", told, *words], capture_output=True, text=True, check=True, timeout=60)
    _, found, *loaded = done.stdout.splitlines()[-1].split()
    assert int(found) == code
    assert {"sparsona", "typer"} <= set(loaded)
    assert not HEAVY & set(loaded)


def test_the_version_is_an_option_and_the_package_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "sparsona", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{__version__}\n"


@pytest.mark.parametrize("name", ["run", "compare", "sweep", "tune", "choose"])
def test_every_command_that_runs_something_takes_every_option_of_run(name: str) -> None:
    group = typer.main.get_command(app)
    taken = {parameter.name for parameter in group.commands[name].params}  # type: ignore[attr-defined]
    assert {field.name for field in dataclasses.fields(RunOptions)} <= taken


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of a group, inner groups included, with the words that call it."""
    for name, command in group.commands.items():
        yield (*path, name), command
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else ()


def test_no_summary_is_cut_off_or_wrapped_at_80_columns() -> None:
    whole: Any = typer.main.get_command(app)
    for path, group in [((), whole), *commands(whole)]:
        if not hasattr(group, "commands"):
            continue
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*path, "--help"]).output.splitlines()
        assert all(len(line) <= 80 and "…" not in line and "..." not in line.partition("  ")[2] for line in shown)
        for name, command in group.commands.items():
            words = [line.split() for line in shown]
            summary = command.help.partition("\n")[0].split()
            assert summary, f"{name} has no summary"
            assert [name, *summary] in words, f"the summary of {' '.join([*path, name])} takes more than one line"


def test_commands_are_grouped() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    places = [shown.index(f"\n{panel}:\n") for panel in PANELS]
    assert places == sorted(places)
    assert "\nCommands:\n" not in shown, "a command has no rich_help_panel"


@pytest.mark.parametrize("name", ["run", "compare", "sweep", "tune", "choose"])
def test_help_says_of_an_option_what_the_setting_says(name: str) -> None:
    shown = " ".join(CliRunner().invoke(app, [name, "--help"]).output.split())
    settings = {setting.name: setting for setting in all_settings()}
    assert settings.keys() >= set(keys().values())
    for option, key in keys().items():
        assert f"--{option.replace('_', '-')} " in shown
        assert (settings[key].text, settings[key].default) == declared()[key]
        assert settings[key].text in shown
    assert f"{settings['rounds'].text} [{settings['rounds'].default}]" in shown


def test_one_method_is_shown_with_types_ranges_and_defaults() -> None:
    shown = CliRunner().invoke(app, ["methods", "pfedgate"]).output
    assert "A private gate on each client" in shown
    assert "int >= 1" in shown
    assert "greedy | exact" in shown
