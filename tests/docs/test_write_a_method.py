"""docs/write-a-method.md: its FedBABU is written into the skeleton, passes its test, and runs by its name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from pages import ROOT, snippets

from sparsona.skeleton import new_method

PAGE = ROOT / "docs" / "write-a-method.md"


def titled() -> dict[str, str]:
    """The blocks that are files, by their path."""
    found = ((re.search(r'title="([^"]+)"', s.info), s.text) for s in snippets(PAGE) if s.kind == "python")
    return {title[1]: text for title, text in found if title}


def run(*words: str, folder: Path, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_fedbabu_from_nothing_to_a_command(tmp_path: Path) -> None:
    package, installed = tmp_path / "fedbabu", tmp_path / "installed"
    written = {str(file.relative_to(package)) for file in new_method("fedbabu", package)}
    files = titled()
    assert set(files) == {"src/sparsona_fedbabu/__init__.py", "tests/test_fedbabu.py"} <= written
    for name, text in files.items():
        (package / name).write_text(text, encoding="utf-8")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=package, path=package / "src")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(installed))
    run("-m", "pip", "install", *options, str(package), folder=package, path=package)
    (shown,) = json.loads(run("-m", "sparsona", "methods", "fedbabu", "--json", folder=tmp_path, path=installed))
    assert set(shown["options"]) == {"head", "ft_epochs", "tune"}
    small = ("--rounds", "2", "--clients", "3", "--set", "tune=head", "--quiet", "--out", "run")
    run("-m", "sparsona", "run", "fedbabu", *small, folder=tmp_path, path=installed)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["bytes"]["up"] > 0


def test_the_entry_point_is_the_skeletons(tmp_path: Path) -> None:
    new_method("fedbabu", tmp_path / "fedbabu")
    (block,) = (s.text for s in snippets(PAGE) if s.kind == "toml")
    assert block in (tmp_path / "fedbabu" / "pyproject.toml").read_text()
