"""Values in memory up to a budget, the rest in files: for client states, references and the server's state."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from sparsona.files import PART, write_whole

T = TypeVar("T")


class SpillStore(Generic[T]):
    """Values by name. Those used longest ago are evicted to files when memory holds more than `limit` bytes.

    A name stands for one content: a hash, or a version. So a checkpoint names files and copies nothing. A file that a
    checkpoint may name outlives its value: :meth:`discard` forgets, :meth:`sweep` removes after the next checkpoint.
    Files are in a temporary folder until :meth:`settle` or :meth:`adopt` names another.

    `size` gives a value's bytes in memory and `encode` those of its file; a store without `encode` writes no value.
    No file is ever removed whose name does not match `pattern`. Several threads may use one store.

    >>> store = SpillStore[str]("[a-z]+", limit=8, size=len, encode=lambda name, value: value.encode())
    >>> for name in ("one", "two", "three"):
    ...     store.put(name, name)
    >>> store.held, store.find("three"), store.find("one"), (store.folder / "one").read_bytes()
    ((2, 8), 'three', None, b'one')
    >>> store.keep({"three"})
    >>> store.held, (store.folder / "one").exists()
    ((1, 5), False)
    >>> store.close()
    """

    def __init__(
        self,
        pattern: str,
        limit: int = 0,
        size: Callable[[T], int] = lambda value: 0,
        encode: Callable[[str, T], bytes] | None = None,
    ) -> None:
        self.limit = limit
        self._ours = re.compile(rf"({pattern})({PART})?")
        self._size, self._encode = size, encode
        self._hot: dict[str, tuple[T, int]] = {}
        self._total = 0
        self._files: set[str] = set()
        self._unsynced: dict[str, None] = {}
        self._outdated: set[str] = set()
        self._folder: Path | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.RLock()
        """Held while what is in memory changes, or its order."""

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        if self._folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="sparsona-", ignore_cleanup_errors=True)
            self._folder = Path(self._scratch.name)
        return self._folder

    @property
    def scratch(self) -> Path | None:
        """Return the temporary folder; None if there is none."""
        return Path(self._scratch.name) if self._scratch else None

    @property
    def held(self) -> tuple[int, int]:
        """The number of values in memory, and their bytes."""
        return len(self._hot), self._total

    def is_file(self, name: str) -> bool:
        """Return whether the value has been written."""
        return name in self._files

    def find(self, name: str) -> T | None:
        """The value if it is in memory, where it is now the one used last."""
        with self._lock:
            found = self._hot.pop(name, None)
            if found is None:
                return None
            self._hot[name] = found
            return found[0]

    def put(self, name: str, value: T) -> None:
        """Hold a value, and evict others to stay within the budget. The last value stays, whatever its size."""
        with self._lock:
            self._forget(name)
            self._hot[name] = value, self._size(value)
            self._total += self._hot[name][1]
            while self._total > self.limit and len(self._hot) > 1:
                oldest = next(iter(self._hot))
                self.save([oldest])
                self._forget(oldest)

    def read(self, name: str) -> bytes | None:
        """The content of a value's file; None where there is none."""
        try:
            return None if self._folder is None else (self._folder / name).read_bytes()
        except OSError:
            return None

    def save(self, names: Iterable[str] | None = None) -> None:
        """Write files of these values, or of all in memory."""
        if self._encode is None:
            return
        with self._lock:
            for name in list(self._hot) if names is None else names:
                if name in self._hot and name not in self._files:
                    self.write(name, self._encode(name, self._hot[name][0]))

    def write(self, name: str, data: bytes) -> None:
        """Write the file of a value."""
        write_whole(self.folder / name, data)
        self._files.add(name)
        self._unsynced[name] = None
        self._outdated.discard(name)

    def discard(self, names: Iterable[str]) -> None:
        """Forget values. Their files go with the next :meth:`sweep`, those in a temporary folder at once."""
        with self._lock:
            for name in names:
                self._forget(name)
                self._unsynced.pop(name, None)
                if name in self._files:
                    self._files.remove(name)
                    self._outdated.add(name)
            if self._scratch is not None:
                self.sweep()

    def keep(self, names: Collection[str]) -> None:
        """Discard all other values."""
        with self._lock:
            self.discard([name for name in (*self._hot, *self._files) if name not in names])

    def take_unsynced(self) -> list[Path]:
        """Return the files, and their folder, that may not be on the disk yet: sync them before a checkpoint names
        them.
        """
        files = [self.folder / name for name in self._unsynced]
        self._unsynced.clear()
        return [*files, self.folder] if files else []

    def sweep(self) -> None:
        """Remove the files of discarded values: call it when no checkpoint names them any more."""
        for name in self._outdated:
            (self.folder / name).unlink(missing_ok=True)
        self._outdated.clear()

    def settle(self, folder: Path) -> None:
        """Keep the files in `folder` from now on."""
        if folder == self._folder:
            return
        folder.mkdir(parents=True, exist_ok=True)
        files = {name: self.folder / name for name in self._files}
        for name, file in files.items():
            write_whole(folder / name, file.read_bytes())
        self.close()
        self._folder, self._files, self._unsynced = folder, set(files), dict.fromkeys(files)

    def adopt(self, folder: Path, names: Collection[str]) -> None:
        """Continue with these files, which a checkpoint names. Other files of a store in `folder` are left from a crash
        and are removed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.keep(names)
        self._folder, self._unsynced, self._outdated = folder, {}, set()
        self._files = {path.name for path in folder.iterdir() if path.name in names}
        for path in folder.iterdir():
            if path.name not in names and self._ours.fullmatch(path.name):
                path.unlink()

    def close(self) -> None:
        """Remove the temporary folder."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = self._folder = None
        self._files, self._unsynced, self._outdated = set(), {}, set()

    def _forget(self, name: str) -> None:
        found = self._hot.pop(name, None)
        self._total -= found[1] if found else 0
