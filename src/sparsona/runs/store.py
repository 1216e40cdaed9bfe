"""What clients remember between their turns: what is hot in memory, the rest in files, one a client.

Hot is what this process has used. In the pool it is the workers who use states, and each of their turns reads a file
and writes one: then what is hot is left to the system's cache of files, and this memory stays empty.

A state is written as :func:`sparsona.runs.state.pack` makes it, under the client's name and a version that grows with
every write, never over an older one. So a checkpoint names versions and copies nothing, and a worker process can read
and write states by itself.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.errors import RunError
from sparsona.files import read_regular, write_new
from sparsona.method import ClientId
from sparsona.runs.names import VERSIONED, file_stem
from sparsona.runs.state import digest, pack, unpack_like

HOT_BYTES = 256 * 2**20
"""How much state is kept in memory before the states used longest ago go to disk."""


@dataclass(frozen=True)
class Ticket:
    """Where a worker finds a client's state, `version` of the files called `stem` in `folder` (0: there is none yet),
    and where it puts the next one."""

    folder: Path
    stem: str
    version: int

    @property
    def read(self) -> Path | None:
        """The file with the client's state, None before its first."""
        return self.folder / f"{self.stem}.{self.version}" if self.version else None

    @property
    def write(self) -> Path:
        """The file of the client's next state."""
        return self.folder / f"{self.stem}.{self.version + 1}"

    def absolute(self) -> Ticket:
        """The same for a process that runs in another folder."""
        return Ticket(self.folder.absolute(), self.stem, self.version)

    def state(self) -> bytes | None:
        """The client's packed state."""
        file = self.read
        try:
            return None if file is None else file.read_bytes()
        except OSError as error:
            raise RunError(f"cannot read a client's state: {error.strerror}: {file}") from None

    def keep(self, state: bytes | None) -> str | None:
        """Write the client's next state; returns the sha256 of its bytes, None where there is none."""
        if state is None:
            return None
        write_new(self.write, state)
        return hashlib.sha256(state).hexdigest()


@dataclass(frozen=True)
class Stored:
    """A client's state as a file: the version that its name ends with, and the sha256 of its bytes."""

    version: int
    sha256: str


class ClientStore:
    """The clients' states. One that was never written is what `fresh` makes for a client."""

    def __init__(self, fresh: Callable[[ClientId], Any], hot_bytes: int = HOT_BYTES) -> None:
        self._fresh = fresh
        self._limit = hot_bytes
        self._hot: dict[ClientId, Any] = {}
        self._sizes: dict[ClientId, int] = {}
        self._total = 0
        self._unsaved: set[ClientId] = set()
        self._stored: dict[ClientId, Stored] = {}
        self._unsynced: set[ClientId] = set()
        self._outdated: list[Path] = []
        self._folder: Path | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def get(self, client: ClientId) -> Any:
        """A client's state; a fresh one for a client that has none."""
        if client in self._hot:
            state = self._hot.pop(client)
            self._hot[client] = state
            return state
        if client not in self._stored:
            return self._fresh(client)
        state = read_state(self._file(client), self._fresh(client), client)
        self._keep_hot(client, state)
        return state

    def put(self, client: ClientId, state: Any) -> None:
        """Keep a client's state until the next checkpoint writes it."""
        self._unsaved.add(client)
        self._keep_hot(client, state)

    def digests(self, clients: Iterable[ClientId]) -> dict[ClientId, str]:
        """Of each client's state: the sha256 of its bytes, whether they are in a file or not."""
        return {client: self._digest(client) for client in sorted(clients)}

    def ticket(self, client: ClientId) -> Ticket:
        """For a worker process that does the reading and writing itself; tell :meth:`written` when it has written."""
        if client in self._unsaved:
            self._save(client)
        return Ticket(self._place(), file_stem(client), self._next(client) - 1)

    def written(self, client: ClientId, sha256: str) -> None:
        """The file that the client's last ticket named is its state now; its bytes have this hash."""
        self._forget(client)
        self._replace(client, sha256)

    @property
    def scratch(self) -> Path | None:
        """The folder of the states while they belong to no run directory: whoever comes last removes it."""
        return Path(self._scratch.name) if self._scratch else None

    def settle(self, folder: Path) -> Mapping[ClientId, Stored]:
        """Have all states as files in `folder`, from now on; returns what is stored of each."""
        if self._folder != folder:
            folder.mkdir(parents=True, exist_ok=True)
            old = {client: self._file(client) for client in self._stored}
            self._folder = folder
            for client, path in old.items():
                write_new(self._file(client), path.read_bytes())
            self._unsynced = set(self._stored)
            self.close()
        for client in sorted(self._unsaved):
            self._save(client)
        return self._stored

    def take_unsynced(self) -> list[Path]:
        """The files, and their folder, that may not be on the disk yet: sync them before a checkpoint names them."""
        files = [self._file(client) for client in sorted(self._unsynced)]
        self._unsynced.clear()
        return [*files, files[0].parent] if files else []

    def adopt(self, folder: Path, stored: Mapping[ClientId, Stored]) -> None:
        """Continue with the states that a checkpoint names, if all of them are as they were written.

        Other versions in `folder` are left from a crash, and go. Files that no store has written stay.
        """
        self._hot, self._sizes, self._total = {}, {}, 0
        self._unsaved, self._unsynced, self._outdated = set(), set(), []
        self._folder, self._stored = folder, dict(stored)
        wanted = set()
        for client, state in self._stored.items():
            file = self._file(client)
            wanted.add(file.name)
            check_sha256(file, state.sha256, f"the state of client {client}")
        for path in sorted(folder.iterdir()) if folder.exists() else ():
            if path.name not in wanted and VERSIONED.fullmatch(path.name):
                path.unlink()

    def sweep(self) -> None:
        """Remove the versions that have been replaced: call it when no checkpoint needs them any more."""
        for path in self._outdated:
            path.unlink(missing_ok=True)
        self._outdated.clear()

    def close(self) -> None:
        """Remove what was written outside of a run directory."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _next(self, client: ClientId) -> int:
        return self._stored[client].version + 1 if client in self._stored else 1

    def _place(self) -> Path:
        """The folder of the states."""
        if self._folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="sparsona-", ignore_cleanup_errors=True)
            self._folder = Path(self._scratch.name)
        return self._folder

    def _file(self, client: ClientId, version: int | None = None) -> Path:
        number = self._stored[client].version if version is None else version
        return self._place() / f"{file_stem(client)}.{number}"

    def _save(self, client: ClientId) -> None:
        sha256 = write_state(self._file(client, self._next(client)), self._hot[client])
        self._unsaved.discard(client)
        self._replace(client, sha256)

    def _replace(self, client: ClientId, sha256: str) -> None:
        """The client's next version is its state from now on."""
        if client in self._stored:
            self._outdated.append(self._file(client))
        self._stored[client] = Stored(self._next(client), sha256)
        self._unsynced.add(client)
        if self._scratch is not None:
            self.sweep()

    def _keep_hot(self, client: ClientId, state: Any) -> None:
        unsaved = client in self._unsaved
        self._forget(client)
        self._hot[client], self._sizes[client] = state, state_bytes(state)
        self._total += self._sizes[client]
        if unsaved:
            self._unsaved.add(client)
        while self._total > self._limit and len(self._hot) > 1:
            coldest = next(iter(self._hot))
            if coldest in self._unsaved:
                self._save(coldest)
            self._forget(coldest)

    def _forget(self, client: ClientId) -> None:
        self._hot.pop(client, None)
        self._total -= self._sizes.pop(client, 0)
        self._unsaved.discard(client)

    def _digest(self, client: ClientId) -> str:
        if client in self._stored and client not in self._unsaved:
            return self._stored[client].sha256
        return digest(self.get(client))


def write_state(path: Path, state: Any) -> str:
    """Write a state to a new file; returns the sha256 of its bytes."""
    data = pack(state)
    write_new(path, data)
    return hashlib.sha256(data).hexdigest()


def check_sha256(path: Path, sha256: str, what: str) -> bytes:
    """The content of a file that a checkpoint names. One that is missing or not as it was written is refused."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        raise RunError(f"{what} is missing: run it again into another --out") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunError(f"{what} is damaged, {path.name} is not as it was written: run it again into another --out")
    return data


def read_state(path: Path, fresh: Any, client: ClientId) -> Any:
    """The state in a file; a `fresh` one of the same client tells the types to be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot read the state of client {client}: {error.strerror}: {path}") from None
    try:
        return unpack_like(data, fresh)
    except RunError as error:
        raise RunError(f"{path}: {error}") from None


def state_bytes(state: Any) -> int:
    """About how much memory a state takes."""
    if isinstance(state, np.ndarray):
        return int(state.nbytes)
    if is_dataclass(state):
        return sum(state_bytes(getattr(state, f.name)) for f in fields(state))
    if isinstance(state, dict):
        return sum(map(state_bytes, state.values()))
    return sum(map(state_bytes, state)) if isinstance(state, tuple | list) else 64
