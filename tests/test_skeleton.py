"""`sparsona new method NAME`: the package that it writes installs, passes its own tests, and is a method."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsona.errors import InputError
from sparsona.skeleton import new_method

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, folder: Path, path: Path) -> str:
    """The output of a command that must succeed, with the packages of `path` beside Sparsona."""
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT / 'src'}"}
    given = [str(word) for word in command]
    done = subprocess.run(given, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def install(package: Path, to: Path) -> None:
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", to)
    run(sys.executable, "-m", "pip", "install", *options, package, folder=package, path=package)


def test_the_package_passes_its_tests_and_is_a_method(tmp_path: Path) -> None:
    package, installed = tmp_path / "my-method", tmp_path / "installed"
    new_method("my-method", package)
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=package, path=package / "src")
    install(package, installed)
    shown = run(sys.executable, "-m", "sparsona", "methods", "my-method", "--json", folder=tmp_path, path=installed)
    (entry,) = json.loads(shown)
    assert entry["options"] == {"step": 1.0}
    words = ("run", "my-method", "--rounds", "1", "--clients", "2", "--set", "step=0.5", "--quiet", "--out", "run")
    run(sys.executable, "-m", "sparsona", *words, folder=tmp_path, path=installed)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["options"] == {"step": 0.5}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("My Method", "no name for a method"),
        ("-x", "no name for a method"),
        ("fedavg", "already"),
        ("class", "a word of Python"),
    ],
)
def test_names_that_cannot_be_are_refused(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        new_method(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_no_folder_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        new_method("my-method", tmp_path)
