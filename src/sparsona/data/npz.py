"""``npz:PATH``: the user's own arrays in one .npz file.

`x` and `y`; perhaps `x_test` and `y_test`, the official test part; perhaps `client`, the client of each sample, and
`client_test`; perhaps `columns`, the names of the columns of `x`. Further arrays with one value per sample are columns
that ``--split`` may name. :func:`sparsona.data.from_arrays` describes the arrays.
"""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparsona.data._arrays import from_pairs
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.dataset import Array
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.table import Table, Tables
from sparsona.errors import DataError
from sparsona.files import checked_npz, reading

KEYS = ("x", "y", "x_test", "y_test", "client", "client_test", "columns")


@source(about="your own arrays: npz:PATH with x, y and perhaps x_test, y_test, client", licence="yours")
def load(store: Store, path: Path) -> Tables:
    """A test sample without a `client_test` has no owner; a partition assigns it by its class."""
    path = path.expanduser()
    table = read_npz_table(path, "")
    columns = Columns(client="client") if "client" in table.columns else Columns()
    return Tables(path.stem, (table,), owned=False, columns=columns)


def read_npz_table(path: Path, owner: str) -> Table:
    """The arrays of a file as a table."""
    arrays = read_npz(path)
    for key in ("x", "y"):
        if key not in arrays:
            raise DataError(
                f"{path} has no array {key!r}; save it with numpy.savez(path, x=..., y=...); several inputs per "
                "sample are given in Python, to a simulation"
            )
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{path} has only one of x_test and y_test; give both or none")
    test = (arrays["x_test"], arrays["y_test"]) if "x_test" in arrays else None
    called = [str(name) for name in arrays["columns"].tolist()] if "columns" in arrays else []
    table = from_pairs((arrays["x"], arrays["y"]), test, owner, str(path), called=called)
    columns = dict(table.columns)
    if "client" in arrays:
        clients = _values(arrays, "client", len(table) - table.test, path)
        theirs = np.full(table.test, "", np.str_)
        if "client_test" in arrays and test is not None:
            theirs = _values(arrays, "client_test", table.test, path)
        columns["client"] = np.concatenate([clients, theirs]) if table.test else clients
    further = {key: _values(arrays, key, len(table), path) for key in arrays if key not in KEYS}
    return replace(table, columns=columns | further, aside=frozenset(further))


def _values(arrays: dict[str, Array], key: str, rows: int, path: Path) -> Array:
    values = arrays[key]
    if values.shape != (rows,) or values.dtype.kind not in "iufUS" or (key in KEYS and values.dtype.kind == "f"):
        known = "" if key in KEYS else f"; rename it to one of {', '.join(KEYS)}, or leave it out"
        problem = f"{path}: {key} has shape {values.shape} and type {values.dtype}"
        raise DataError(f"{problem}{known or f'; give one name or number for each of the {rows} samples'}")
    return values.astype(np.str_) if key in KEYS or values.dtype.kind == "S" else values


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of a .npz file. Python objects are refused: reading them could run code."""
    try:
        with reading(path):
            if zipfile.is_zipfile(path):
                with path.open("rb") as opened:
                    checked_npz(opened, path)
            stored = np.load(path, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is not a .npz file; write it with numpy.savez")
            with stored:
                return {key: stored[key] for key in stored.files}
    except MemoryError as error:
        raise DataError(f"{path} claims more than fits into memory ({error}); write it anew, or in parts") from None
    except (ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error) and zipfile.is_zipfile(path):
            raise DataError(f"{path} holds Python objects; save plain numbers or texts, not dtype=object") from error
        raise DataError(f"{path} is not a .npz file, or it is damaged; write it anew with numpy.savez") from error
