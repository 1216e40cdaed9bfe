"""Where a data set's files lie, how they are read, and what is said when they are absent or damaged."""

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
    """The folders that hold data sets, in the order in which they are searched: `root` alone where it is
    given, else ``$SPARSONA_DATA`` and ``~/.cache/sparsona``. Downloads go to the first.
    """
    if root is not None:
        return (Path(root).expanduser(),)
    chosen = os.environ.get(VARIABLE, "")
    default = Path("~/.cache/sparsona").expanduser()
    return (Path(chosen).expanduser(), default) if chosen else (default,)


@dataclass(frozen=True)
class Store:
    """The files of one data set.

    A name is looked for as it is published and also without ``.gz`` and without its sub-folder, since people
    unpack.
    """

    source: Source
    roots: tuple[Path, ...]
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, source: Source, root: Path | None = None) -> Store:
        """The store of a data set, below `root` or the usual places."""
        places = roots(root)
        system = tuple(Path(folder) for folder in source.system) if root is None else ()
        return cls(source, places, (*(place / source.name for place in places), *system))

    def find_all(self, pattern: str) -> list[Path]:
        """All files that fit `pattern` in the first folder that has any, sorted by name."""
        short = pattern.removesuffix(".gz")
        for folder in self.folders:
            for candidate in dict.fromkeys((pattern, short, Path(pattern).name, Path(short).name)):
                found = sorted(path for path in folder.glob(candidate) if path.is_file())
                if found:
                    return found
        return []

    def find(self, *names: str) -> Path | None:
        """The first of `names` that is there."""
        return next((found[0] for found in map(self.find_all, names) if found), None)

    def need(self, *names: str) -> Path:
        """The first of `names` that is there; an error with the fix where none is."""
        found = self.find(*names)
        if found is None:
            raise self.missing(names[0])
        return found

    def has(self, file: File) -> bool:
        """Whether all that a file stands for is here."""
        return all(self.find(name, *file.also) is not None for name in file.wanted)

    @property
    def present(self) -> bool:
        """Whether all files are there (a data set without files is always there)."""
        return all(self.has(file) for file in self.source.files)

    def missing(self, name: str) -> DataError:
        """The error for a file that is not here."""
        places = ", ".join(str(folder) for folder in self.folders)
        problem = f"data set {self.source.name!r} is not here ({name} was looked for in {places})"
        return DataError(f"{problem}: {self.advice}")

    def damaged(self, path: Path, why: str) -> DataError:
        """The error for a file that cannot be read."""
        return DataError(f"{path} is damaged ({why}): delete it, then {self.advice}")

    @property
    def advice(self) -> str:
        """How to get the data."""
        if self.source.by_hand:
            return self.source.by_hand
        by_hand = f"put its files there by hand (from {self.source.homepage})"
        return f"run `sparsona data get {self.source.name}` or {by_hand}"

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Within this block a file that cannot be read or decompressed gives a DataError with the fix."""
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
        """The content of a file, decompressed where it is gzip (whatever its name says)."""
        with self.reading(path):
            data = path.read_bytes()
            return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
