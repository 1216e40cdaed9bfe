"""Data sets by name, one file each, and the user's own.

>>> from sparsona import data
>>> digits = data.load("digits")
>>> digits.inputs.shape, digits.classes
((1797, 1, 8, 8), 10)
"""

from pathlib import Path

from sparsona.data._fetch import Fetched, FetchedFile, Progress, fetch
from sparsona.data._own import from_arrays, from_python, from_torch
from sparsona.data._store import DATASETS, File, Source, Store, roots, source
from sparsona.data._tables import dataset_of
from sparsona.data.dataset import Dataset
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.roles import ColumnSplit
from sparsona.data.schema.table import Tables
from sparsona.errors import InputError
from sparsona.registry import bind, split_spec

__all__ = [
    "DATASETS",
    "PATHS",
    "Columns",
    "Fetched",
    "FetchedFile",
    "File",
    "Progress",
    "Source",
    "Store",
    "absolute",
    "describe",
    "fetch",
    "from_arrays",
    "from_python",
    "from_torch",
    "load",
    "roots",
    "source",
]


def load(
    spec: str, root: Path | None = None, columns: Columns | None = None, along: ColumnSplit | None = None
) -> Dataset:
    """Load the data set that `spec` names: ``mnist``, ``emnist:letters``, ``npz:my.npz``, ``folder:my/clients``.

    Its files are searched below `root` if given, else below ``$SPARSONA_DATA`` and ``~/.cache/sparsona``. `columns`
    declares the columns of a table, `along` the column by which its rows will be split.
    """
    found = DATASETS.get(split_spec(spec)[0])
    given = found.load(Store.of(found, root), **bind("data set", spec, found.load, skip=1))
    if isinstance(given, Tables):
        return dataset_of(given, columns or Columns(), along, whole=True)
    if along is not None or (columns or Columns()) != Columns():
        raise InputError(f"{found.name} is no table of columns: leave --target, --features, --split and the like out")
    return given


PATHS = ("csv", "folder", "images", "npz", "parquet")
"""The data sets whose spec holds a path."""


def absolute(spec: str, base: Path) -> str:
    """Return the spec with its path, if it holds one, made absolute from `base`.

    >>> absolute("folder:clients", Path("/tmp/study")), absolute("mnist", Path("/tmp"))
    ('folder:/tmp/study/clients', 'mnist')
    """
    name, colon, path = spec.partition(":")
    return f"{name}:{(base / Path(path).expanduser()).resolve()}" if colon and name in PATHS else spec


def describe(source: Source | str, root: Path | None = None) -> Store:
    """Return the files of a data set, which are not read: whether they are here, and what a download would take.

    >>> describe("digits").present
    True
    """
    return Store.of(DATASETS.get(split_spec(source)[0]) if isinstance(source, str) else source, root)
