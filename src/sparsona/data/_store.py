"""Find and read the files of a data set; errors for missing and damaged files."""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparsona.data._source import File, Source
from sparsona.errors import DataError

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
