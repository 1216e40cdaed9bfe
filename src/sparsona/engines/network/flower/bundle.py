"""The app that is submitted to the SuperLink. It holds an experiment and no code: the installed packages run."""

from __future__ import annotations

from pathlib import Path

import tomli_w

from sparsona.files import write_new
from sparsona.version import __version__

EMPTY = b'"""Empty: the installed sparsona runs, and no code of a bundle."""\n\napp = None\n'


def write_bundle(folder: Path, experiment: str, name: str, patience: float, fewest: int = 0) -> Path:
    """Write an app folder for `flwr run`; `experiment` is TOML, `name` names the run directory."""
    package = folder / "sparsona_run"
    package.mkdir(parents=True, exist_ok=True)
    about = {"name": "sparsona-run", "version": __version__, "description": "An experiment for sparsona"}
    apps = {"serverapp": "sparsona_run.server_app:app", "clientapp": "sparsona_run.client_app:app"}
    config = {"experiment": experiment, "name": name, "patience": float(patience), "fewest": fewest}
    settings = {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {**about, "license": "Apache-2.0", "dependencies": []},
        "tool": {"flwr": {"app": {"publisher": "sparsona", "components": apps, "config": config}}},
    }
    write_new(folder / "pyproject.toml", tomli_w.dumps(settings).encode())
    write_new(package / "__init__.py", b"")
    for file in ("server_app.py", "client_app.py"):
        write_new(package / file, EMPTY)
    return folder
