"""Client states between turns: recently used ones in memory, the others in files, one per client.

A state is written as :func:`sparsona.runs.state.pack` makes it, under the client's name and a version that grows with
every write, never over an older one. So a checkpoint names versions and copies nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.by_client import ByClient
from sparsona.errors import RunError
from sparsona.files import read_regular
from sparsona.method import ClientId
from sparsona.runs.names import VERSIONED, file_stem
from sparsona.runs.spill import SpillStore
from sparsona.runs.state import digest, pack, unpack_like
from sparsona.tree import leaves

HOT_BYTES = 256 * 2**20
"""Bytes of state in memory; beyond, the states used longest ago are evicted to disk."""


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
        if client not in self._versions or self.files.is_file(self._name(client)):
            self._advance(client)
        self.files.put(self._name(client), state)

    def digests(self, clients: Iterable[ClientId]) -> dict[ClientId, str]:
        """Of each client's state: the sha256 of its bytes, whether they are in a file or not."""
        return {client: self._digest(client) for client in sorted(clients)}

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

    def _advance(self, client: ClientId) -> None:
        """Replace the client's state by its next version."""
        if client in self._versions:
            old = self._name(client)
            self._sha256.pop(old, None)
            self.files.discard([old])
        self._versions[client] = self._versions.get(client, 0) + 1

    def _packed(self, name: str, state: Any) -> bytes:
        data = pack(state)
        self._sha256[name] = hashlib.sha256(data).hexdigest()
        return data

    def _digest(self, client: ClientId) -> str:
        known = self._sha256.get(self._name(client)) if client in self._versions else None
        return known or digest(self.get(client))


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
