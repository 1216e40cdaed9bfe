"""A package for a method of your own: what `sparsona new method NAME` writes."""

import keyword
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from sparsona.errors import InputError
from sparsona.methods import METHODS
from sparsona.version import __version__

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new_method(name: str, folder: Path) -> list[Path]:
    """Write the package of a method called `name` into a new `folder`; the files that were written."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name for a method: use small letters, digits and hyphens, as in my-method")
    module = name.replace("-", "_")
    if keyword.iskeyword(module):
        raise InputError(f"{name!r} is a word of Python: choose another name")
    if name in METHODS.names():
        raise InputError(f"there is a method called {name!r} already: choose another name")
    if folder.exists():
        raise InputError(f"{folder} exists already: choose another --out")
    title = "".join(part.capitalize() for part in name.split("-"))
    words = {"name": name, "module": f"sparsona_{module}", "title": title, "version": __version__}
    package = folder / "src" / words["module"]
    targets = {
        folder / "pyproject.toml": "pyproject.toml",
        folder / "README.md": "README.md",
        package / "__init__.py": "method.py",
        package / "py.typed": "",
        folder / "tests" / f"test_{module}.py": "test.py",
    }
    return [_written(path, template, words) for path, template in targets.items()]


def _written(path: Path, template: str, words: Mapping[str, str]) -> Path:
    text = (files("sparsona") / "templates" / f"{template}.txt").read_text(encoding="utf-8") if template else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Template(text).substitute(words), encoding="utf-8")
    return path
