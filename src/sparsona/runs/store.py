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
from urllib.parse import quote

import numpy as np

from sparsona.errors import RunError
from sparsona.method import ClientId
from sparsona.runs.state import digest, kinds_of, pack, unpack

HOT_BYTES = 256 * 2**20
"""How much state is kept in memory before the states used longest ago go to disk."""


@dataclass(frozen=True)
class Ticket:
    """Where a worker finds a client's state (None: it has none yet) and where it puts the next one."""

    read: Path | None
    write: Path


class ClientStore:
    """The clients' states. One that was never written is what `fresh` makes for a client."""

    def __init__(self, fresh: Callable[[ClientId], Any], hot_bytes: int = HOT_BYTES) -> None:
        self._fresh = fresh
        self._limit = hot_bytes
        self._hot: dict[ClientId, Any] = {}
        self._sizes: dict[ClientId, int] = {}
        self._total = 0
        self._unsaved: set[ClientId] = set()
        self._versions: dict[ClientId, int] = {}
        self._outdated: list[Path] = []
        self._folder: Path | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def get(self, client: ClientId) -> Any:
        if client in self._hot:
            state = self._hot.pop(client)
            self._hot[client] = state
            return state
        if client not in self._versions:
            return self._fresh(client)
        state = read_state(self._file(client), self._fresh(client), client)
        self._keep_hot(client, state)
        return state

    def put(self, client: ClientId, state: Any) -> None:
        self._unsaved.add(client)
        self._keep_hot(client, state)

    def digests(self, clients: Iterable[ClientId]) -> dict[ClientId, str]:
        """Of each client's state: the sha256 of its bytes, which are in its file where it has one."""
        return {client: self._digest(client) for client in sorted(clients)}

    def ticket(self, client: ClientId) -> Ticket:
        """For a worker process that does the reading and writing itself; tell :meth:`written` when it has written."""
        if client in self._unsaved:
            self._save(client)
        read = self._file(client) if client in self._versions else None
        return Ticket(read, self._file(client, self._versions.get(client, 0) + 1))

    def written(self, client: ClientId) -> None:
        """The file that the client's last ticket named is its state now."""
        self._forget(client)
        self._next_version(client)

    @property
    def scratch(self) -> Path | None:
        """The folder of the states while they belong to no run directory: whoever comes last removes it."""
        return Path(self._scratch.name) if self._scratch else None

    def settle(self, folder: Path) -> Mapping[ClientId, int]:
        """Have all states as files in `folder`, from now on; returns the version of each."""
        if self._folder != folder:
            folder.mkdir(parents=True, exist_ok=True)
            old = {client: self._file(client) for client in self._versions}
            self._folder = folder
            for client, path in old.items():
                self._file(client).write_bytes(path.read_bytes())
            self.close()
        for client in sorted(self._unsaved):
            self._save(client)
        return self._versions

    def adopt(self, folder: Path, versions: Mapping[ClientId, int]) -> None:
        """Continue with the states that a checkpoint names. Other files in `folder` are left from a crash, and go."""
        self._hot, self._sizes, self._total, self._unsaved = {}, {}, 0, set()
        self._folder, self._versions = folder, dict(versions)
        found = {path.name: path for path in folder.iterdir()} if folder.exists() else {}
        for client in self._versions:
            if found.pop(self._file(client).name, None) is None:
                raise RunError(f"the state of client {client} is missing: run it again into another --out")
        for path in found.values():
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

    def _file(self, client: ClientId, version: int | None = None) -> Path:
        if self._folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="sparsona-", ignore_cleanup_errors=True)
            self._folder = Path(self._scratch.name)
        return self._folder / f"{quote(client, safe='')}.{self._versions[client] if version is None else version}"

    def _save(self, client: ClientId) -> None:
        self._file(client, self._versions.get(client, 0) + 1).write_bytes(pack(self._hot[client]))
        self._unsaved.discard(client)
        self._next_version(client)

    def _next_version(self, client: ClientId) -> None:
        if client in self._versions:
            self._outdated.append(self._file(client))
        self._versions[client] = self._versions.get(client, 0) + 1
        if self._scratch is not None:
            self.sweep()

    def _keep_hot(self, client: ClientId, state: Any) -> None:
        unsaved = client in self._unsaved
        self._forget(client)
        self._hot[client], self._sizes[client] = state, _bytes(state)
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
        if client in self._versions and client not in self._unsaved:
            return hashlib.sha256(self._file(client).read_bytes()).hexdigest()
        return digest(self.get(client))


def read_state(path: Path, fresh: Any, client: ClientId) -> Any:
    """The state in a file; a `fresh` one of the same client tells the types to be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot read the state of client {client}: {error.strerror}: {path}") from None
    try:
        return unpack(data, kinds_of(fresh))
    except RunError as error:
        raise RunError(f"{path}: {error}") from None


def _bytes(state: Any) -> int:
    """About how much memory a state takes."""
    if isinstance(state, np.ndarray):
        return int(state.nbytes)
    if is_dataclass(state):
        return sum(_bytes(getattr(state, f.name)) for f in fields(state))
    if isinstance(state, dict):
        return sum(map(_bytes, state.values()))
    return sum(map(_bytes, state)) if isinstance(state, tuple | list) else 64
