"""The user's own files: ``folder:`` has one per client, named after it; ``csv:``, ``parquet:`` and ``npz:`` are one.

``berlin.csv`` and ``berlin.parquet`` have columns, which :class:`sparsona.data.Columns` declares. ``berlin.npz`` holds
`x` and `y`; perhaps `x_test` and `y_test`, the official test part; perhaps `client`, the client of each sample, and
`client_test`; perhaps `columns`, the names of the columns of `x`. Further arrays of one value per sample are columns
that ``--split`` may name. :func:`sparsona.data.from_arrays` describes the arrays.

Any other file in a folder is refused, so that no client is left out silently. Hidden files and those that describe the
folder (README, .md) are passed over. In one file of all clients, ``--client COLUMN`` names each row's client, or
``--partition`` divides the rows; one of them must be given.

``images:`` has one folder per client with one folder per class in it: ``photos/berlin/cat/1.png`` is an image of the
class cat that berlin has. All images must have the same size. They are read as RGB, or as one channel where all are
grey.
"""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from sparsona.data._arrays import from_pairs
from sparsona.data._csv import read_csv
from sparsona.data._frames import read_parquet
from sparsona.data._store import Store, source
from sparsona.data.dataset import Array
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.table import Table, Tables
from sparsona.errors import DataError
from sparsona.files import checked_npz, reading

ENDINGS = ".csv, .parquet or .npz"
JUNK = ("desktop.ini", "thumbs.db")
"""Names of files that Windows creates in folders."""


@source("folder", about="your own files, one a client: folder:PATH with .csv, .parquet or .npz (x, y)", licence="yours")
def folder(store: Store, path: Path) -> Tables:
    """Load the rows of every client, one file each."""
    path = path.expanduser()
    tables = tuple(read_table(file, file.stem) for file in _client_files(path))
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


def _client_files(path: Path) -> list[Path]:
    files = entries(path, "folder")
    for file in files:
        if file.is_dir():
            raise DataError(f"{file} is a folder; put one file per client into {path} itself, or move it elsewhere")
        if file.suffix.lower() not in READERS:
            raise DataError(f"{file} is no {ENDINGS} file; {_remedy(file)}, or move it out of the folder")
    if not files:
        raise DataError(f"there is no {ENDINGS} file in {path}; put one file per client there")
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


KEYS = ("x", "y", "x_test", "y_test", "client", "client_test", "columns")


@source("npz", about="your own arrays: npz:PATH with x, y and perhaps x_test, y_test, client", licence="yours")
def npz(store: Store, path: Path) -> Tables:
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
        clients = _per_sample(arrays, "client", len(table) - table.test, path)
        theirs = np.full(table.test, "", np.str_)
        if "client_test" in arrays and test is not None:
            theirs = _per_sample(arrays, "client_test", table.test, path)
        columns["client"] = np.concatenate([clients, theirs]) if table.test else clients
    further = {key: _per_sample(arrays, key, len(table), path) for key in arrays if key not in KEYS}
    return replace(table, columns=columns | further, aside=frozenset(further))


def _per_sample(arrays: dict[str, Array], key: str, rows: int, path: Path) -> Array:
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


ONE_FILE = "your own rows in one file: {}:PATH, with --client COLUMN where it holds several clients"


@source("csv", about=ONE_FILE.format("csv"), licence="yours")
def csv(store: Store, path: Path) -> Tables:
    """The rows of one csv file."""
    return Tables(path.stem, (read_csv(path.expanduser(), ""),), owned=False)


@source("parquet", about=ONE_FILE.format("parquet"), licence="yours")
def parquet(store: Store, path: Path) -> Tables:
    """The rows of one parquet file."""
    return Tables(path.stem, (read_parquet(path.expanduser(), ""),), owned=False)


READERS = {".csv": read_csv, ".npz": read_npz_table, ".parquet": read_parquet}


IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
GREY = ("1", "L")


@source(
    "images",
    about="your own images: images:PATH with one folder a client and one folder a class in it",
    licence="yours",
)
def images(store: Store, path: Path) -> Tables:
    """The images of every client."""
    path = path.expanduser()
    found = {folder: _images_of(folder) for folder in _subfolders(path, "client")}
    images = [image for own in found.values() for image, _ in own]
    size, colour, tables = images[0].shape[:2], any(image.ndim == 3 for image in images), list[Table]()
    for folder, own in found.items():
        for image, file in own:
            if image.shape[:2] != size:
                shown = " and ".join(f"{width} x {height}" for height, width in (size, image.shape[:2]))
                raise DataError(f"{folder}: {file} differs in size from the others ({shown}); resize all alike")
        block, label = np.stack([_channels(image, colour) for image, _ in own]), [file.parent.name for _, file in own]
        columns, raw = {"label": np.array(label, np.str_)}, frozenset({"label"})
        tables.append(Table(folder.name, str(folder), columns, block, target=("label",), raw=raw))
    return Tables(path.resolve().name, tuple(tables), owned=True)


def _channels(image: Array, colour: bool) -> Array:
    """The image with its channels first."""
    if not colour:
        return image[None]
    return np.moveaxis(image, 2, 0) if image.ndim == 3 else np.repeat(image[None], 3, axis=0)


def _images_of(folder: Path) -> list[tuple[Array, Path]]:
    found = []
    for inner in _subfolders(folder, "class"):
        for file in entries(inner, "images"):
            if file.suffix.lower() not in IMAGES:
                raise DataError(f"{file} is no image ({', '.join(IMAGES)}); move it out of the folder")
            found.append((_read_image(file), file))
    if not found:
        raise DataError(f"{folder} holds no images; put them into one folder a class: {folder.name}/CLASS/1.png")
    return found


def _subfolders(path: Path, what: str) -> list[Path]:
    found = entries(path, "images")
    for one in found:
        if not one.is_dir():
            raise DataError(f"{one} is no folder; {path} holds one folder a {what}")
    if not found:
        raise DataError(f"{path} is empty; put one folder a {what} there")
    return found


def _read_image(file: Path) -> Array:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("L" if image.mode in GREY else "RGB"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} cannot be read as an image ({error}); write it anew or leave it out") from None
