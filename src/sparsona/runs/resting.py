"""Server state that grows with the number of clients: beyond a memory budget it is kept in files.

A value of a :class:`~sparsona.by_client.ByClient` becomes a file that is named by its content, so a checkpoint
names it and copies nothing. A large array, such as one with one row per client, becomes a file that is mapped: the
system keeps in memory what is read, and takes that back when memory is short.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.by_client import ByClient, Resting
from sparsona.files import write_new
from sparsona.runs.state import pack, unpack
from sparsona.runs.store import SpillStore, check_sha256, state_bytes
from sparsona.tree import leaves, replaced

BUDGET = 256 * 2**20  # bytes of client state on the server that stay in memory
SHARE = 4  # an array is large if it takes more than the budget divided by this number
WHOLE = 2**20  # up to this many bytes, a checkpoint writes all clients' values; beyond, only the changed ones
NAMES = "[0-9a-f]{64}|rows-[0-9]+"  # the files of values, and those of large arrays


def read_resting(folder: Path, name: str) -> bytes:
    """Return the bytes of a stored value; raise an error if it is missing or damaged."""
    return check_sha256(folder / name, name, f"{folder / name}, a part of the server's state,")


def resting_names(state: Any) -> set[str]:
    """Return the names of all values of a state that are in files."""
    held = (value for part in _parts(state) if isinstance(part, ByClient) for value in part.held.values())
    return {value.name for value in held if isinstance(value, Resting)}


class RestingStore:
    """Writes what a state holds for clients beyond `limit` bytes to files, the oldest values first.

    >>> store = RestingStore(limit=1000)
    >>> state = store.rested(ByClient({name: np.zeros(100) for name in "abc"}))
    >>> len(resting_names(state)), state["a"].shape, store.held
    (1, (100,), 800)
    """

    def __init__(self, limit: int = BUDGET, whole: int = WHOLE) -> None:
        self._limit = limit
        self._whole = whole
        self.files: SpillStore[Any] = SpillStore(NAMES)
        """What is put aside."""
        self._sizes: dict[int, dict[str, tuple[Any, int]]] = {}
        self._written: dict[int, tuple[Any, Resting[Any]]] = {}
        self._mapped_files: dict[int, tuple[np.ndarray[Any, Any], Path]] = {}
        self._number = 0
        self.held = 0
        """Bytes of clients' values that the last state has in memory."""

    def written(self, state: Any) -> Any:
        """Return the state for a checkpoint: clients' values are in files, unless they are small. Unchanged values are
        not written again.

        >>> store = RestingStore(whole=1000)
        >>> state = ByClient({name: np.zeros(100) + ord(name) for name in "abc"})
        >>> len(resting_names(store.written(state))), len(resting_names(state))
        (3, 0)
        """
        by_client = [part for part in _parts(state) if isinstance(part, ByClient)]
        sizes = [self._measured(number, part) for number, part in enumerate(by_client)]
        if sum(size for own in sizes for _, size in own.values()) <= self._whole:
            return state
        changed: dict[int, Any] = {}
        now: dict[int, tuple[Any, Resting[Any]]] = {}
        for part, own in zip(by_client, sizes, strict=True):
            for value, _ in own.values():
                if id(value) not in now:
                    now[id(value)] = value, self._put(value)
            changed[id(part)] = ByClient({k: now[id(v)][1] if k in own else v for k, v in part.held.items()})
        self._written = now
        return replaced(state, lambda leaf: changed.get(id(leaf), leaf), ByClient)

    def rested(self, state: Any) -> Any:
        """Return the state with values beyond the budget in files."""
        parts = _parts(state)
        by_client = [part for part in parts if isinstance(part, ByClient)]
        arrays = [part for part in parts if isinstance(part, np.ndarray) and id(part) not in self._mapped_files]
        sizes = [self._measured(number, part) for number, part in enumerate(by_client)]
        self.held = sum({id(value): size for own in sizes for value, size in own.values()}.values())
        if self.held + sum(array.nbytes for array in arrays) <= self._limit:
            return state
        changed: dict[int, Any] = {id(a): self._mapped(a) for a in arrays if SHARE * a.nbytes > self._limit}
        put: dict[int, Resting[Any]] = {}
        for part, own in zip(by_client, sizes, strict=True):
            values: dict[str, Any] = {}
            for client, (value, size) in own.items():
                if self.held <= self._limit:
                    break
                if id(value) not in put:
                    put[id(value)] = self._put(value)
                    self.held -= size
                values[client] = put[id(value)]
            if values:
                changed[id(part)] = ByClient({client: values.get(client, old) for client, old in part.held.items()})
        return replaced(state, lambda leaf: changed.get(id(leaf), leaf), ByClient)

    def _measured(self, number: int, part: ByClient[Any]) -> dict[str, tuple[Any, int]]:
        """Yield the values of a part that are in memory, with their bytes, which are cached from the last state."""
        last = self._sizes.get(number, {})
        found = {}
        for client, value in part.held.items():
            if not isinstance(value, Resting):
                known = last.get(client)
                found[client] = known if known is not None and known[0] is value else (value, state_bytes(value))
        self._sizes[number] = found
        return found

    def _put(self, value: Any) -> Resting[Any]:
        if id(value) in self._written:
            return self._written[id(value)][1]
        data = pack(value)
        name = hashlib.sha256(data).hexdigest()
        if not self.files.is_file(name):
            self.files.write(name, data)
        kind, files = type(value), self.files
        return Resting(name, lambda: unpack(read_resting(files.folder, name), kind))

    def _mapped(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array in a file, mapped into memory."""
        path = self.files.folder / f"rows-{self._number}"
        self._number += 1
        write_new(path, b"")
        found = np.memmap(path, array.dtype, "w+", shape=array.shape)
        found[...] = array
        found.flush()
        found.flags.writeable = False
        view = np.asarray(found)
        self._mapped_files[id(view)] = view, path
        return view

    def keep(self, state: Any) -> None:
        """Remove values that this state does not use. Mapped files go at once, because no checkpoint names them."""
        arrays = {id(part) for part in _parts(state) if isinstance(part, np.ndarray)}
        for key in self._mapped_files.keys() - arrays:
            self._mapped_files.pop(key)[1].unlink(missing_ok=True)
        self.files.keep(resting_names(state))

    def close(self) -> None:
        """Remove the files outside of a run directory."""
        self.files.close()


def _parts(state: Any) -> list[Any]:
    """Return the mappings by client and the arrays of a state."""
    return [leaf for leaf in leaves(state, ByClient) if isinstance(leaf, ByClient | np.ndarray)]
