"""Data sets by name, one file each, and the user's own.

>>> from sparsona import data
>>> digits = data.load("digits")
>>> digits.inputs.shape, digits.classes
((1797, 1, 8, 8), 10)
"""

from dataclasses import dataclass
from pathlib import Path

from sparsona.data._fetch import Fetched, FetchedFile, Progress, fetch
from sparsona.data._own import from_arrays, from_python, from_torch
from sparsona.data._source import DATASETS, File, Source, source
from sparsona.data._store import Store, roots
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
    "Description",
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


@dataclass(frozen=True)
class Description:
    """A description of a data set, made without reading it."""

    name: str
    about: str
    licence: str
    homepage: str
    size: int | None
    """Bytes to download; None if there is no download or its size is unknown."""
    present: bool
    """True if it can be loaded now; always for the user's own data, whose path is part of the spec."""
    folder: Path
    """The folder of downloads, which is also searched first."""


def describe(source: Source | str, root: Path | None = None) -> Description:
    """Describe a data set for lists.

    >>> describe("digits").present
    True
    """
    known = DATASETS.get(split_spec(source)[0]) if isinstance(source, str) else source
    store = Store.of(known, root)
    return Description(
        known.name, known.about, known.licence, known.homepage, known.size, store.present, store.folders[0]
    )
