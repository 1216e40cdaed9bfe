"""``folder:PATH``: the user's own data in a folder, one file per client, named after it.

``berlin.csv`` and ``berlin.parquet`` have columns, ``berlin.npz`` holds `x` and `y`, perhaps `x_test` and `y_test`. All
are understood as :class:`sparsona.data.Columns` declares them. Any other file is refused, so that no client is left out
silently. Hidden files and those that describe the folder (README, .md) are passed over.
"""

from pathlib import Path

from sparsona.data._arrow import read_parquet
from sparsona.data._csv import read_csv
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.npz import read_npz_table
from sparsona.data.schema.table import Table, Tables
from sparsona.errors import DataError

READERS = {".csv": read_csv, ".npz": read_npz_table, ".parquet": read_parquet}
ENDINGS = ".csv, .parquet or .npz"
JUNK = ("desktop.ini", "thumbs.db")
"""Names of files that Windows creates in folders."""


@source(about="your own files, one a client: folder:PATH with .csv, .parquet or .npz (x, y)", licence="yours")
def load(store: Store, path: Path) -> Tables:
    """Load the rows of every client, one file each."""
    path = path.expanduser()
    tables = tuple(read_table(file, file.stem) for file in _files(path))
    tested = [table.where for table in tables if table.test]
    if tested and len(tested) < len(tables):
        plain = next(table.where for table in tables if not table.test)
        raise DataError(f"{tested[0]} brings test data and {plain} does not; give it for all clients or for none")
    return Tables(path.resolve().name, tables, owned=True)


def read_table(path: Path, owner: str) -> Table:
    """The table in a file, by what its name ends in, in capitals or not."""
    if path.suffix.lower() not in READERS:
        raise DataError(f"cannot read {path}: the name must end in {', '.join(sorted(READERS))}")
    return READERS[path.suffix.lower()](path, owner)


def _files(path: Path) -> list[Path]:
    files = entries(path, "folder")
    for file in files:
        if file.is_dir():
            raise DataError(f"{file} is a folder; put one file a client into {path} itself, or move it elsewhere")
        if file.suffix.lower() not in READERS:
            raise DataError(f"{file} is no {ENDINGS} file; {_remedy(file)}, or move it out of the folder")
    if not files:
        raise DataError(f"there is no {ENDINGS} file in {path}; put one file a client there")
    seen: dict[str, Path] = {}
    for file in files:
        if file.stem in seen:
            raise DataError(f"{seen[file.stem]} and {file.name} name the same client; rename one of them")
        seen[file.stem] = file
    return files


def entries(path: Path, kind: str) -> list[Path]:
    """Return the sorted entries of a folder that are not harmless; `kind` is that of the data set."""
    try:
        return sorted(one for one in path.iterdir() if not is_harmless(one))
    except OSError as error:
        raise DataError(f"cannot read the folder {path}: {error.strerror}; check the path behind {kind}:") from error


def is_harmless(file: Path) -> bool:
    """True for files that are no data: hidden files, locks of office programs, Windows' own files, descriptions."""
    name = file.name.lower()
    return name.startswith((".", "~$", "readme")) or name in JUNK or file.suffix.lower() == ".md"


def _remedy(file: Path) -> str:
    return "unpack it" if file.suffix.lower() in (".gz", ".zip", ".bz2", ".xz", ".7z") else "save it as .csv"
