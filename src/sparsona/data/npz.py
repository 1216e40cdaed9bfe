"""``npz:PATH``: the user's own arrays in one .npz file.

`x` and `y`; perhaps `x_test` and `y_test`, the official test part; perhaps `client`, the client of each sample,
and `client_test`. What the arrays may be is told at :func:`sparsona.data.from_arrays`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sparsona.data._own import assemble, checked_pair
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.dataset import Array, Dataset
from sparsona.errors import DataError

NOBODY = -1
KEYS = ("x", "y", "x_test", "y_test", "client", "client_test")


@source(about="your own arrays: npz:PATH with x, y and perhaps x_test, y_test, client", licence="yours")
def load(store: Store, path: Path) -> Dataset:
    """A test sample without a `client_test` belongs to nobody; a partition deals it out by its class."""
    path = path.expanduser()
    arrays = read_npz(path)
    odd = sorted(set(arrays) - set(KEYS))
    if odd:
        raise DataError(f"{path} holds {odd[0]!r}; rename it to one of {', '.join(KEYS)}, or leave it out")
    train, test = pairs(arrays, path)
    names: tuple[str, ...] = ()
    groups = None
    if "client" in arrays:
        owners = [_owners(arrays, "client", train, path)]
        if test is not None and "client_test" in arrays:
            owners.append(_owners(arrays, "client_test", test, path))
        found, numbers = np.unique(np.concatenate(owners), return_inverse=True)
        names = tuple(str(one) for one in found)
        groups = np.full(len(train[1]) + (0 if test is None else len(test[1])), NOBODY, np.int64)
        groups[: len(numbers)] = numbers
    return assemble(path.stem, [train], [] if test is None else [test], names, groups=groups)


def _owners(arrays: Mapping[str, Array], key: str, pair: tuple[Array, Array], path: Path) -> Array:
    owners, samples = arrays[key], len(pair[1])
    if owners.shape != (samples,) or owners.dtype.kind not in "iuUS":
        problem = f"{path}: {key} has shape {owners.shape} and type {owners.dtype}"
        raise DataError(f"{problem}; give one name or number for each of the {samples} samples")
    return owners.astype(str) if owners.dtype.kind == "S" else owners


def read_npz(path: Path) -> dict[str, Array]:
    """All arrays of a .npz file. Python objects are refused: reading them would run what the file says."""
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise DataError(f"{path} is not a .npz file; write it with numpy.savez")
        with stored:
            return {key: stored[key] for key in stored.files}
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; check the path behind npz:") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; make the file readable") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if "allow_pickle" in str(error) and zipfile.is_zipfile(path):
            raise DataError(f"{path} holds Python objects; save plain numbers or texts, not dtype=object") from error
        raise DataError(f"{path} is not a .npz file, or it is damaged; write it anew with numpy.savez") from error


def pairs(arrays: Mapping[str, Array], path: Path) -> tuple[tuple[Array, Array], tuple[Array, Array] | None]:
    """The training pair and, where there is one, the test pair."""
    for key in ("x", "y"):
        if key not in arrays:
            raise DataError(f"{path} has no array {key!r}; save it with numpy.savez(path, x=..., y=...)")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{path} has only one of x_test and y_test; give both or none")
    train = checked_pair((arrays["x"], arrays["y"]), str(path))
    return train, checked_pair((arrays["x_test"], arrays["y_test"]), str(path)) if "x_test" in arrays else None
