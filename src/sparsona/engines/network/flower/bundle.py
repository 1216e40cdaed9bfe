"""The app that is submitted to the SuperLink. It holds an experiment and no code: the installed packages run."""

from __future__ import annotations

import json
from pathlib import Path

from sparsona.files import write_new
from sparsona.version import __version__

EMPTY = '"""Empty: the installed sparsona runs, and no code of a bundle."""\n\napp = None\n'


def write_bundle(folder: Path, experiment: str, name: str, patience: float, fewest: int = 0) -> Path:
    """Write an app folder for `flwr run`; `experiment` is TOML, `name` names the run directory."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "[build-system]",
        'requires = ["hatchling"]',
        'build-backend = "hatchling.build"',
        "[project]",
        'name = "sparsona-run"',
        f'version = "{__version__}"',
        'description = "An experiment for sparsona"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "[tool.flwr.app]",
        'publisher = "sparsona"',
        "[tool.flwr.app.components]",
        'serverapp = "sparsona_run.server_app:app"',
        'clientapp = "sparsona_run.client_app:app"',
        "[tool.flwr.app.config]",
        f"experiment = {json.dumps(experiment)}",
        f"name = {json.dumps(name)}",
        f"patience = {float(patience)!r}",
        f"fewest = {fewest}",
    ]
    write_new(folder / "pyproject.toml", ("\n".join(lines) + "\n").encode())
    package = folder / "sparsona_run"
    package.mkdir(exist_ok=True)
    write_new(package / "__init__.py", b"")
    for file in ("server_app.py", "client_app.py"):
        write_new(package / file, EMPTY.encode())
    return folder
