"""Data sets made from others: some samples of one, for small machines.

A file is made once, when its case is listed, if its source is on the machine. Otherwise the run of such a case ends
with an error that names the data set to get.
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
"""The `columns` of an excerpt. Its images are normalised by their data set's constants, or not at all."""


@dataclass(frozen=True)
class _Recipe:
    """The file of a data set, the data set that it is made of, and how."""

    path: Path
    source: str
    make: Callable[[Dataset], Mapping[str, Array]]


_RECIPES: dict[str, _Recipe] = {}
"""The recipes of the requested data sets, by spec."""


def derived(name: str, source: str, make: Callable[[Dataset], Mapping[str, Array]]) -> str:
    """Return the spec of a data set that is made from another; `make` returns the arrays of its file."""
    path = excerpt_file(name)
    spec = f"npz:{path}"
    _RECIPES[spec] = _Recipe(path, source, make)
    if not path.exists() and describe(source).present:
        ensure(spec)
    return spec


def ensure(spec: str) -> None:
    """Make the file of a derived data set if it is missing; if its source is missing, too, the error says how to get
    it.
    """
    recipe = _RECIPES.get(spec)
    if recipe is not None and not recipe.path.exists():
        write_arrays(recipe.path, recipe.make(load(recipe.source)))


def source_of(spec: str) -> str:
    """Return the name of the data set behind a spec: the source of a derived one.

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
    """Return the path of a derived data set's arrays."""
    return roots()[0] / "excerpts" / f"{name}.npz"


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a file of arrays atomically."""
    kept = io.BytesIO()
    np.savez_compressed(kept, **arrays)  # type: ignore[arg-type]  # its stub knows one keyword only
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, kept.getvalue())
