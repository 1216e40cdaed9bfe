"""Data sets that are made of others: some samples of one, so that a small machine can test as often as it trains.

A file is made once, when its case is listed, if what it is made of is on the machine. If not, cases can be listed all
the same; whoever runs one is told which data set to get.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsona.data import describe, load, roots
from sparsona.data.dataset import Array, Dataset
from sparsona.files import write_atomically
from sparsona.registry import split_spec

AS_IT_IS = {"scaling": "none"}
"""The `columns` of an excerpt: its images are normalised by their data set's constants or not at all."""


@dataclass(frozen=True)
class _Recipe:
    """The file of a data set, the data set that it is made of, and how."""

    path: Path
    source: str
    make: Callable[[Dataset], Mapping[str, Array]]


_RECIPES: dict[str, _Recipe] = {}
"""By spec: how each data set is made that was asked for here."""


def derived(name: str, source: str, make: Callable[[Dataset], Mapping[str, Array]]) -> str:
    """The spec of a data set that is made of another; `make` gives the arrays of its file."""
    path = excerpt_file(name)
    spec = f"npz:{path}"
    _RECIPES[spec] = _Recipe(path, source, make)
    if not path.exists() and describe(source).present:
        ensure(spec)
    return spec


def ensure(spec: str) -> None:
    """Make the file of a data set that is made of another, if it is not there; where the other one is not here, either,
    the error says how to get it."""
    recipe = _RECIPES.get(spec)
    if recipe is not None and not recipe.path.exists():
        write_arrays(recipe.path, recipe.make(load(recipe.source)))


def source_of(spec: str) -> str:
    """The name of the data set behind a spec: that of which it is made, if it is made of another.

    >>> source_of("emnist:letters"), source_of(excerpt("digits", 100))
    ('emnist', 'digits')
    """
    recipe = _RECIPES.get(spec)
    return split_spec(spec if recipe is None else recipe.source)[0]


def excerpt(data: str, count: int) -> str:
    """Some images of a data set, the same for everyone."""

    def some(whole: Dataset) -> Mapping[str, Array]:
        chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:count])
        return {"x": whole.inputs[chosen], "y": whole.targets[chosen]}

    return derived(f"{data}-{count}", data, some)


def excerpt_file(name: str) -> Path:
    """Where the arrays of a data set lie that is made here."""
    return roots()[0] / "excerpts" / f"{name}.npz"


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """A file of arrays, whole or not at all."""
    kept = io.BytesIO()
    np.savez_compressed(kept, **arrays)  # type: ignore[arg-type]  # its stub knows one keyword only
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, kept.getvalue())
