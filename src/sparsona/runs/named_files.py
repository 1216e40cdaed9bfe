"""The files of a store, by name: a checkpoint names them and copies nothing."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection
from pathlib import Path

from sparsona.files import PART, write_whole


class NamedFiles:
    """The files of a folder whose names match `pattern`: nothing else is ever removed there.

    Before there is a folder they are in a temporary one.

    >>> files = NamedFiles("[0-9a-f]{4}")
    >>> files.write("00ff", b"some state")
    >>> sorted(files.names), len(files.take_unsynced({"00ff"}))
    (['00ff'], 2)
    >>> files.sweep(())
    >>> files.names
    set()
    >>> files.close()
    """

    def __init__(self, pattern: str, folder: Path | None = None) -> None:
        self._ours = re.compile(rf"({pattern})({PART})?")
        self._folder = folder
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._names: set[str] | None = None
        self._unsynced: list[Path] = []

    @property
    def folder(self) -> Path:
        """Where the files are."""
        if self._folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="sparsona-", ignore_cleanup_errors=True)
            self._folder = Path(self._scratch.name)
        return self._folder

    @property
    def names(self) -> set[str]:
        """The files in the folder, which is listed once: who writes there does so by :meth:`write` or :meth:`note`."""
        if self._names is None:
            self._names = {path.name for path in self.folder.iterdir() if self._ours.fullmatch(path.name)}
        return self._names

    def settle(self, folder: Path) -> None:
        """Keep files in `folder` from now on."""
        if folder != self._folder:
            folder.mkdir(parents=True, exist_ok=True)
            self.look_into(folder)

    def look_into(self, folder: Path) -> None:
        """The files are in `folder` from now on, and may be others than before."""
        self._folder, self._names = folder, None

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is not there yet."""
        path = self.folder / name
        write_whole(path, data)
        self._unsynced.append(path)
        self.names.add(name)

    def note(self, name: str) -> None:
        """Know of a file that was found or made there; before the folder is listed there is nothing to know."""
        if self._names is not None:
            self._names.add(name)

    def take_unsynced(self, names: Collection[str]) -> list[Path]:
        """Those of these files, and their folder, that may not be on the disk yet."""
        written, self._unsynced = [path for path in self._unsynced if path.name in names], []
        return [*written, self.folder] if written else []

    def sweep(self, names: Collection[str]) -> None:
        """Remove the other files."""
        if self._folder is None:
            return
        for name in self.names.difference(names):
            (self._folder / name).unlink(missing_ok=True)
            self.names.remove(name)

    def close(self) -> None:
        """Remove the temporary folder."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = self._folder = self._names = None
            self._unsynced = []
