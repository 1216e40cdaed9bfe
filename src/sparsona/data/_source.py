"""The declaration of a data set, and the registry of all data sets."""

from collections.abc import Callable
from dataclasses import dataclass

from sparsona.data.dataset import Dataset
from sparsona.data.schema.table import Tables
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
