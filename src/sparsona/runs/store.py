"""Values in memory up to a budget, the rest in files: references, the server's state, and what clients remember.

A client's state is written as :func:`sparsona.runs.state.pack` makes it, under the client's name and a version that
grows with every write, never over an older one. So a checkpoint names versions and copies nothing.
"""

import hashlib
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from sparsona.by_client import ByClient
from sparsona.errors import RunError
from sparsona.files import PART, read_regular, write_whole
from sparsona.method import ClientId
from sparsona.runs.names import VERSIONED, file_stem
from sparsona.runs.state import digest, pack, unpack_like
from sparsona.tree import leaves

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
        """Return the files, and their folder, to be synced before a checkpoint names them."""
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
        """Continue with these files of a checkpoint. Other files of a store in `folder`, left by a crash, go."""
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


HOT_BYTES = 256 * 2**20  # bytes of state in memory; beyond, the states used longest ago are evicted to disk


@dataclass(frozen=True)
class Stored:
    """A client's state as a file: the version that its name ends with, and the sha256 of its bytes."""

    version: int
    sha256: str


class ClientStore:
    """The clients' states, each under its client's name and a version. A client without a state gets the one that
    `fresh` makes.
    """

    def __init__(self, fresh: Callable[[ClientId], Any], hot_bytes: int = HOT_BYTES) -> None:
        self._fresh = fresh
        self._versions: dict[ClientId, int] = {}
        self._sha256: dict[str, str] = {}
        self.files: SpillStore[Any] = SpillStore(VERSIONED, hot_bytes, state_bytes, self._packed)

    def get(self, client: ClientId) -> Any:
        """A client's state; a fresh one for a client that has none."""
        found = self.find(client)
        return self._fresh(client) if found is None else found

    def find(self, client: ClientId) -> Any:
        """A client's state; None for a client that has none."""
        if client not in self._versions:
            return None
        name = self._name(client)
        state = self.files.find(name)
        if state is None:
            state = read_state(self.files.folder / name, self._fresh(client), client)
            self.files.put(name, state)
        return state

    def put(self, client: ClientId, state: Any) -> None:
        """Keep a client's state until the next checkpoint writes it."""
        old = self._name(client) if client in self._versions else ""
        if not old or self.files.is_file(old):  # a file keeps its content: the next version gets another one
            self._sha256.pop(old, None)
            self.files.discard([old])
            self._versions[client] = self._versions.get(client, 0) + 1
        self.files.put(self._name(client), state)

    def digests(self, clients: Iterable[ClientId]) -> dict[ClientId, str]:
        """Of each client's state: the sha256 of its bytes, whether they are in a file or not."""
        known = {client: self._sha256.get(self._name(client)) for client in self._versions}
        return {client: known.get(client) or digest(self.get(client)) for client in sorted(clients)}

    def settle(self, folder: Path) -> Mapping[ClientId, Stored]:
        """Write all states to files in `folder` from now on; return the stored version of each."""
        self.files.settle(folder)
        self.files.save()
        return {client: Stored(n, self._sha256[self._name(client)]) for client, n in self._versions.items()}

    def adopt(self, folder: Path, stored: Mapping[ClientId, Stored]) -> None:
        """Continue with the states that a checkpoint names, if none is damaged."""
        self.files.keep(())
        self._versions = {client: state.version for client, state in stored.items()}
        self._sha256 = {self._name(client): state.sha256 for client, state in stored.items()}
        for client in stored:
            name = self._name(client)
            check_sha256(folder / name, self._sha256[name], f"the state of client {client}")
        self.files.adopt(folder, self._sha256)

    def _name(self, client: ClientId) -> str:
        return f"{file_stem(client)}.{self._versions[client]}"

    def _packed(self, name: str, state: Any) -> bytes:
        data = pack(state)
        self._sha256[name] = hashlib.sha256(data).hexdigest()
        return data


def check_sha256(path: Path, sha256: str, what: str) -> bytes:
    """Return the content of a file that a checkpoint names; raise an error if it is missing or damaged."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        raise RunError(f"{what} is missing: run it again into another --out") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunError(f"{what} is damaged, {path.name} is not as it was written: run it again into another --out")
    return data


def read_state(path: Path, fresh: Any, client: ClientId) -> Any:
    """Return the state in a file, of the types of a `fresh` state of this client."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot read the state of client {client}: {error.strerror}: {path}") from None
    try:
        return unpack_like(data, fresh)
    except RunError as error:
        raise RunError(f"{path}: {error}") from None


def state_bytes(state: Any) -> int:
    """Estimate the bytes that a state takes."""
    return sum(int(leaf.nbytes) if isinstance(leaf, np.ndarray) else 64 for leaf in leaves(state, ByClient))
