"""A package for a method of your own: what `sparsona new method NAME` writes."""

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from sparsona.errors import InputError
from sparsona.methods import METHODS
from sparsona.version import __version__

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

PYPROJECT = Template("""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "sparsona-$name"
version = "0.1.0"
description = "$title, a method for Sparsona"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["sparsona>=$version"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[project.entry-points."sparsona.methods"]
$name = "$module:$title"

[tool.setuptools.packages.find]
where = ["src"]

[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]
""")

MODULE = Template('''\
"""$title: cite the paper here, and say in two sentences what the method does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparsona import Arrival, Fit, Message, Method, ServerContext, Task, Vector, option
from sparsona.ops.mean import weighted_mean

if TYPE_CHECKING:
    from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """What the server remembers from round to round: the global model w."""

    weights: Vector


@dataclass(frozen=True)
class ClientState:
    """What a client remembers from round to round: its last own model."""

    own: Vector


@dataclass(frozen=True)
class $title(Method[ServerState, ClientState]):
    """FedAvg to begin with: the first line of this text is what `sparsona methods` shows."""

    step: float = option(1.0, "share of the way to the mean of the replies that the server goes", gt=0, le=1)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: str) -> ClientState:
        return ClientState(task.initial)

    def send(self, server: ServerState, to: str, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        trained = local.train(down.vector("weights", local.layout.size)).weights
        return Fit(ClientState(trained), Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = context.task.layout.size
        mean = weighted_mean((a.message.examples(), a.message.vector("weights", size)) for a in arrivals)
        return ServerState((1 - self.step) * server.weights + self.step * mean)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)
''')

TEST = Template('''\
"""The method keeps the contract: lost, late and repeated messages, resume, privacy, the same bits twice."""

import numpy as np
from $module import $title
from sparsona.message import Message
from sparsona.method import Arrival, ServerContext
from sparsona.testing import check_method, tiny_setup


def test_the_contract_is_kept() -> None:
    check_method($title())


def test_the_server_goes_to_the_mean() -> None:
    task = tiny_setup($title()).task
    server, size = $title().start_server(task), task.layout.size
    one, three = (np.full(size, value, np.float32) for value in (1, 3))
    arrivals = [
        Arrival("a", Message(weights=one, examples=30), 0),
        Arrival("b", Message(weights=three, examples=10), 0),
    ]
    after = $title().aggregate(server, arrivals, ServerContext(task, 0))
    assert np.allclose(after.weights, 1.5)
''')

README = Template("""\
# $title

A method for Sparsona. In an environment that has Sparsona:

    pip install --no-deps --editable .
    python -m pytest
    sparsona methods $name
    sparsona compare $name --rounds 10

The method is `src/$module/__init__.py`. It begins as FedAvg; change it, and keep the tests green.
""")


def new_method(name: str, folder: Path) -> list[Path]:
    """Write the package of a method called `name` into a new `folder`; the files that were written.

    >>> import tempfile
    >>> files = new_method("my-method", Path(tempfile.mkdtemp()) / "my-method")
    >>> sorted(file.name for file in files)
    ['README.md', '__init__.py', 'py.typed', 'pyproject.toml', 'test_my_method.py']
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name for a method: use small letters, digits and hyphens, as in my-method")
    module = name.replace("-", "_")
    if keyword.iskeyword(module):
        raise InputError(f"{name!r} is a word of Python: choose another name")
    if name in METHODS.names():
        raise InputError(f"there is a method called {name!r} already: choose another name")
    if folder.exists():
        raise InputError(f"{folder} exists already: choose another --out")
    words = {"name": name, "module": f"sparsona_{module}", "title": _title(name), "version": __version__}
    return [_written(folder / path, text, words) for path, text in _files(module).items()]


def _files(module: str) -> dict[str, Template]:
    package = f"src/sparsona_{module}"
    return {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"{package}/__init__.py": MODULE,
        f"{package}/py.typed": Template(""),
        f"tests/test_{module}.py": TEST,
    }


def _written(path: Path, text: Template, words: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.substitute(words), encoding="utf-8")
    return path


def _title(name: str) -> str:
    """The class's name.

    >>> _title("my-method")
    'MyMethod'
    """
    return "".join(part.capitalize() for part in name.split("-"))
