"""Starting is cheap, and an option of `run` is declared once."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from sparsona.cli import app
from sparsona.cli.options import RunOptions
from sparsona.version import __version__

HEAVY = {"torch", "scipy", "sklearn", "numba", "pandas", "matplotlib"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["methods"], 0),
        (["run", "--help"], 0),
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


def test_one_method_is_shown_with_types_ranges_and_defaults() -> None:
    shown = CliRunner().invoke(app, ["methods", "pfedgate"]).output
    assert "A private gate on each client" in shown
    assert "int >= 1" in shown
    assert "greedy | exact" in shown
