"""about.json: the facts about a run besides its records, written when the run begins."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from pydantic import TypeAdapter

from sparsona.data.dataset import Array, ClientSplit, Dataset, Federation, Indices
from sparsona.errors import RunError, one_line
from sparsona.files import read_regular, write_atomically
from sparsona.partition._split import class_counts
from sparsona.training.objective import Objective
from sparsona.version import __version__
from sparsona.words import counted

if TYPE_CHECKING:
    from sparsona.data.schema.rows import Rows

FILE = "about.json"
distributions = cache(packages_distributions)  # the distributions that each top-level module comes from


@dataclass(frozen=True)
class ClientData:
    """A client's number of samples per part, and of training samples per class.

    `hash` covers its raw rows (:func:`row_hashes`); it is empty if the writer had no data or an older version. Clients
    are compared without it, since another seed divides the same rows in another way.
    """

    train: int
    validation: int
    test: int
    classes: tuple[int, ...] = ()
    hash: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True)
class RateSearch:
    """The learning rate that was chosen, and what the search tried and cost.

    `scores` are the mean validation scores per tried rate after `rounds` rounds; None: it diverged. Bytes and seconds
    are totals of all trials.
    """

    chosen: float
    scores: Mapping[str, float | None]
    rounds: int
    up: int
    down: int
    seconds: float

    def text(self) -> str:
        """Return the search as one clause.

        >>> RateSearch(0.03, {"0.01": 0.7, "0.03": 0.8, "0.1": None}, 4, 0, 0, 1.5).text()
        'lr 0.03, chosen on validation rows from 0.01, 0.03, 0.1 (4 rounds each)'
        """
        rounds = counted(self.rounds, "round")
        return f"lr {self.chosen:g}, chosen on validation rows from {', '.join(self.scores)} ({rounds} each)"


@dataclass(frozen=True)
class About:
    """The content of about.json: metric, model size, the clients' data and the environment."""

    metric: str
    higher_is_better: bool
    weights: int
    clients: Mapping[str, ClientData] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of all distributions that were imported when the run began, plug-ins included."""
    command: tuple[str, ...] = ()  # The command that started the run. It may name folders, so reports do not show it.
    doubts: tuple[str, ...] = ()  # warnings about the tables, one line each
    added: tuple[str, ...] = ()  # additions to the finished run, one line each
    rate: RateSearch | None = None  # the search of the learning rate; None if the rate was given


_ABOUT = TypeAdapter(About)


def describe(federation: Federation, objective: Objective, weights: int, rows: Rows | None = None) -> About:
    """Return the content of about.json for this federation. `rows` are the raw rows of a table."""
    data, hashes = federation.data, row_hashes(federation, rows)
    counts = class_counts(federation) if data.classes else {}
    clients = {
        name: ClientData(
            len(split.train),
            len(split.validation),
            len(split.test),
            tuple(int(count) for count in counts[name]) if counts else (),
            hashes[name],
        )
        for name, split in federation.splits.items()
    }
    names = data.class_names or tuple(str(label) for label in range(data.classes))
    return About(
        objective.metric_name,
        objective.higher_is_better,
        weights,
        clients,
        tuple(map(str, names)),
        environment(),
        packages=imported_packages(),
        command=(Path(sys.argv[0]).name or "python", *sys.argv[1:]) if sys.argv else (),
    )


def row_hashes(federation: Federation, rows: Rows | None = None) -> dict[str, str]:
    """Return a hash of each client's samples, in the order of its split, to detect changed rows.

    For a table the raw `rows` are hashed, column by column in the order of names. Prepared rows depend on all clients
    by the scaling. All clients follow the first one in the order of columns, which is part of that client's hash.
    """
    order = () if rows is None else rows.order
    return {
        name: _hash(federation.data, rows, split, () if place else order)
        for place, (name, split) in enumerate(federation.splits.items())
    }


def _hash(data: Dataset, rows: Rows | None, split: ClientSplit, order: tuple[str, ...]) -> str:
    head = [len(split.train), len(split.validation), len(split.test), *order]
    found = hashlib.blake2b(json.dumps(head).encode(), digest_size=16)
    chosen = np.concatenate([split.train, split.validation, split.test])
    for name, values in _columns(data, rows, chosen):
        if values.dtype.kind in "US":
            found.update(f"{name}\0text\0".encode() + "\0".join(values.ravel().tolist()).encode())
        else:
            found.update(f"{name}\0{values.dtype.str}\0{values.shape[1:]}\0".encode())
            found.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _columns(data: Dataset, rows: Rows | None, chosen: Indices) -> Iterator[tuple[str, Array]]:
    """Yield the client's columns by name."""
    if rows is None:
        yield "inputs", data.inputs[chosen]
        yield "targets", data.targets[chosen]
        return
    if rows.block is not None:
        yield "samples", rows.block[chosen]
    numbers = rows.numbers[chosen]
    columns = {name: numbers[:, k] for k, name in enumerate(rows.number_names)} if rows.block is None else {}
    columns |= {name: values[chosen] for name, values in rows.categories.items()}
    for name in sorted(columns):
        yield f"column {name}", columns[name]
    yield f"target {rows.targets}", rows.target[chosen]


def environment() -> dict[str, str]:
    """Return versions and the machine, without names of persons, hosts or paths.

    `instructions` is torch's instruction set: another one may change the last bits of results. `commit` is the commit
    of Sparsona's sources, if they are a clone of the repository.
    """
    packages = ("torch", "numpy", "scipy", "scikit-learn", "numba")
    commit = source_commit()
    return {
        "sparsona": __version__,
        **({"commit": commit} if commit else {}),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count() or 1),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


@cache
def source_commit() -> str:
    """Return the commit of the clone that this package runs from, with a plus sign if files have changed."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""

    def git(*words: str) -> str:
        asked = ["git", "-C", str(root), *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def imported_packages() -> dict[str, str]:
    """Return the version of every distribution of which a module is imported."""
    names = {name.partition(".")[0] for name in sys.modules}
    found = {one for name, several in distributions().items() if name in names for one in several}
    return {name: version(name) for name in sorted(found, key=str.lower)}


def changed_since(folder: Path) -> list[str]:
    """Return the differences of versions and machine since the run in `folder` began, one line each."""
    then = read_about(folder)
    before = {**then.packages, **then.environment}
    after = {**imported_packages(), **environment()}
    shared = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    installed = {one for several in distributions().values() for one in several}
    gone = then.packages.keys() - after.keys() - installed
    return [f"{name} was {before[name]}, is {after.get(name, 'not installed')}" for name in sorted(shared | gone)]


def write_about(folder: Path, about: About) -> None:
    """Write about.json."""
    write_atomically(folder / FILE, json.dumps(asdict(about), indent=1, allow_nan=False) + "\n")


def changed_clients(folder: Path, now: About) -> list[str]:
    """Return the clients whose rows changed, came or went since the run in `folder` began; none without hashes."""
    try:
        there = read_about(folder).clients
    except RunError:  # it is written anew when the run goes on
        return []
    before, after = ({name: one.hash for name, one in clients.items()} for clients in (there, now.clients))
    if not any(before.values()) or not any(after.values()):
        return []
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def read_about(folder: Path) -> About:
    """Read about.json."""
    file = folder / FILE
    try:
        return _ABOUT.validate_json(read_regular(file))
    except FileNotFoundError:
        raise RunError(f"{file} is missing: continue the run with --resume to have it written") from None
    except ValueError as error:
        problem = f"{file} is damaged ({one_line(error)[:200]})"
        raise RunError(f"{problem}: continue the run with --resume to have it written again") from None
