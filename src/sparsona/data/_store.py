"""Data sets by name: their declarations, and their files: found, read, and cached as arrays, without pickle."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsona.data.dataset import Array, Dataset
from sparsona.data.schema.table import Tables
from sparsona.errors import DataError
from sparsona.files import write_whole
from sparsona.registry import Registry


@dataclass(frozen=True)
class File:
    """One published file: its place below the data set's folder, and its addresses.

    `members` names the files that are unpacked from an archive, which is then removed; without members the file is kept
    as it is. A file without `urls` cannot be downloaded: `Source.by_hand` explains how to get it, and `name` may be a
    pattern. Without a checksum only the size is checked.
    """

    name: str
    urls: tuple[str, ...] = ()
    sha256: str = ""
    md5: str = ""
    size: int | None = None
    members: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other names under which a copy is accepted."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the names that must exist for this file to count as present."""
        return self.members or (self.name,)


@dataclass(frozen=True)
class Source:
    """A data set by name: how to read it, and how to get it.

    `load` takes a :class:`~sparsona.data.Store` and the part of the spec after the name (``emnist:letters``).
    """

    name: str
    load: Callable[..., Dataset | Tables]
    about: str
    licence: str
    homepage: str = ""
    files: tuple[File, ...] = ()
    by_hand: str = ""
    system: tuple[str, ...] = ()
    """Other folders in which the operating system may have put the files."""

    @property
    def size(self) -> int | None:
        """Return the bytes to download; None if there is no download or a size is unknown."""
        sizes = [file.size for file in self.files if file.urls]
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None


DATASETS: Registry[Source] = Registry("data set", "sparsona.data", decorator="source")


def source(
    name: str = "",
    *,
    about: str,
    licence: str,
    homepage: str = "",
    files: tuple[File, ...] = (),
    by_hand: str = "",
    system: tuple[str, ...] = (),
) -> Callable[[Callable[..., Dataset | Tables]], Callable[..., Dataset | Tables]]:
    """Register the function below as a data set, by default of its file's name. The function itself stays as it is."""

    def register(load: Callable[..., Dataset | Tables]) -> Callable[..., Dataset | Tables]:
        called = name or load.__module__.rpartition(".")[2].replace("_", "-")
        DATASETS.named(called)(Source(called, load, about, licence, homepage, files, by_hand, system))
        return load

    return register


VARIABLE = "SPARSONA_DATA"


def roots(root: Path | None = None) -> tuple[Path, ...]:
    """Return the searched folders in their order: `root` alone, else ``$SPARSONA_DATA`` and ``~/.cache/sparsona``.

    Downloads go to the first one.

    """
    if root is not None:
        return (Path(root).expanduser(),)
    chosen = os.environ.get(VARIABLE, "")
    default = Path("~/.cache/sparsona").expanduser()
    return (Path(chosen).expanduser(), default) if chosen else (default,)


@dataclass(frozen=True)
class Store:
    """The files of one data set.

    A file is searched under its published name, and also without ``.gz`` and without its sub-folder, because people
    unpack archives.
    """

    source: Source
    roots: tuple[Path, ...]
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, source: Source, root: Path | None = None) -> Store:
        """Return the store of a data set, below `root` or the usual places."""
        places = roots(root)
        system = tuple(Path(folder) for folder in source.system) if root is None else ()
        return cls(source, places, (*(place / source.name for place in places), *system))

    def find_all(self, pattern: str) -> list[Path]:
        """Return all files that match `pattern` in the first folder that has any, sorted by name."""
        short = pattern.removesuffix(".gz")
        for folder in self.folders:
            for candidate in dict.fromkeys((pattern, short, Path(pattern).name, Path(short).name)):
                found = sorted(path for path in folder.glob(candidate) if path.is_file())
                if found:
                    return found
        return []

    def find(self, *names: str) -> Path | None:
        """Return the first of `names` that exists."""
        return next((found[0] for found in map(self.find_all, names) if found), None)

    def need(self, *names: str) -> Path:
        """Return the first of `names` that exists; the error names the fix."""
        found = self.find(*names)
        if found is None:
            raise self.missing(names[0])
        return found

    def has(self, file: File) -> bool:
        """True if a file, or all its members, exist."""
        return all(self.find(name, *file.also) is not None for name in file.wanted)

    @property
    def folder(self) -> Path:
        """Return the folder of downloads, which is also searched first."""
        return self.folders[0]

    @property
    def present(self) -> bool:
        """True if all files exist; always for a data set without files, such as the user's own."""
        return all(self.has(file) for file in self.source.files)

    def missing(self, name: str) -> DataError:
        """Return the error for a missing file."""
        places = ", ".join(str(folder) for folder in self.folders)
        problem = f"data set {self.source.name!r} is not here ({name} was looked for in {places})"
        return DataError(f"{problem}: {self.advice}")

    def damaged(self, path: Path, why: str) -> DataError:
        """Return the error for a file that cannot be read."""
        return DataError(f"{path} is damaged ({why}): delete it, then {self.advice}")

    @property
    def advice(self) -> str:
        """Return how to get the data."""
        if self.source.by_hand:
            return self.source.by_hand
        by_hand = f"put its files there by hand (from {self.source.homepage})"
        return f"run `sparsona data get {self.source.name}` or {by_hand}"

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Turn errors of reading and decompressing in this block into a DataError with the fix."""
        try:
            yield
        except EOFError as error:
            raise self.damaged(path, "it ends too early") from error
        except (gzip.BadGzipFile, zlib.error, tarfile.TarError) as error:
            raise self.damaged(path, str(error).splitlines()[0]) from error
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"cannot read {path}: {reason}; make the file readable") from error

    def read(self, path: Path) -> bytes:
        """Return the content of a file, decompressed if it is gzip, whatever its name is."""
        with self.reading(path):
            data = path.read_bytes()
            return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


FOLDER = ".arrays"
log = logging.getLogger(__name__)


def cached(
    store: Store, files: Sequence[Path], config: str, make: Callable[[], Mapping[str, Array]]
) -> Mapping[str, Array]:
    """Return the arrays that `make` makes of these files, from the cache if possible.

    The key covers the content of the files and the `config`, so a changed archive or tokenizer gives new arrays. An
    unreadable cache is rebuilt; without a writable cache the arrays are made each time.
    """
    name = f"{store.source.name}-{fingerprint(store, files, config)}.npz"
    for root in store.roots:
        arrays = _cached(root / FOLDER / name)
        if arrays is not None:
            return arrays
    arrays = make()
    for root in store.roots:
        try:
            content = io.BytesIO()
            np.savez(content, allow_pickle=False, **arrays)
            (root / FOLDER).mkdir(parents=True, exist_ok=True)
            write_whole(root / FOLDER / name, content.getbuffer())
            break
        except OSError as error:
            log.info("no cache below %s: %s", root, error)
    return arrays


def fingerprint(store: Store, files: Sequence[Path], config: str) -> str:
    """Return the cache key of these files and `config`."""
    digest = hashlib.sha256(config.encode())
    for path in files:
        with store.reading(path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:20]


def _cached(path: Path) -> Mapping[str, Array] | None:
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        log.info("the cache %s is made anew: %s", path, error)
        return None
