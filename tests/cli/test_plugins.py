"""Commands of other distributions: found by their entry points, and harmless where they do not load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
import typer

def hello(name: str) -> None:
    "Greet somebody."
    typer.echo(f"hello {name}")
"""


def plugin(folder: Path, source: str, *points: str) -> Path:
    """An installed distribution with these entry points: a module and its metadata."""
    (folder / "greeting.py").write_text(source)
    about = folder / "greeting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sparsona.commands]\n" + "\n".join(points) + "\n")
    return folder


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "sparsona", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_entry_point_is_a_command(tmp_path: Path) -> None:
    plugin(tmp_path, GOOD, "hello = greeting:hello")
    assert call(tmp_path, "hello", "world").stdout == "hello world\n"
    assert "Greet somebody." in call(tmp_path, "--help").stdout


@pytest.mark.parametrize("source", ["import nothing_that_is_there", "1 / 0", "hello = None\ndel hello"])
def test_a_command_that_does_not_load_says_so_in_a_line_and_others_work(tmp_path: Path, source: str) -> None:
    plugin(tmp_path, source, "hello = greeting:hello")
    told = call(tmp_path, "hello", "world", "--loud")
    assert told.returncode == 2
    (line,) = told.stderr.splitlines()
    assert "'hello' (greeting:hello) does not load" in line
    assert call(tmp_path, "--version").returncode == 0
    assert call(tmp_path, "--help").returncode == 0


def test_a_plug_in_replaces_no_command_of_ours(tmp_path: Path) -> None:
    plugin(tmp_path, GOOD, "methods = greeting:hello")
    assert "fedavg" in call(tmp_path, "methods").stdout


def test_an_unknown_command_of_a_known_distribution_names_it() -> None:
    """As where sparsona-papers is not installed."""
    code = (
        "import sys, importlib.metadata as m\n"
        "found = m.entry_points\n"
        "m.entry_points = lambda **given: () if given.get('group') == 'sparsona.commands' else found(**given)\n"
        "sys.argv = ['sparsona', *sys.argv[1:]]\n"
        "from sparsona.cli import main\n"
        "main()\n"
    )
    told = [
        subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True, check=False)
        for word in ("reproduce", "reprodoce")
    ]
    assert [one.returncode for one in told] == [2, 2]
    assert ["pip install sparsona-papers" in one.stderr for one in told] == [True, False]
    assert [len(one.stderr.splitlines()) for one in told] == [1, 1]
