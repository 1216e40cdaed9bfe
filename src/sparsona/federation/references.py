"""The downlinks that clients hold, by content: what both sides have, and a frame may be coded against.

What goes to many clients alike is held once. The most recent ones are in memory up to a budget, the others in files;
worker processes read the files that they need.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsona.errors import RunError
from sparsona.message import Part, Positions
from sparsona.runs.named_files import NamedFiles
from sparsona.runs.state import pack, unpack
from sparsona.wire import Reference

HOT_BYTES = 256 * 2**20
"""How much is kept in memory before the references used longest ago go to disk."""

NAMES = "[0-9a-f]{16}"
"""The files of references."""

SHORTEST = 64
"""Numbers. What is shorter is not worth a reference."""


def usable(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The parts that another message may be coded against: long vectors, and sets of positions.

    >>> list(usable({"weights": np.zeros(100, np.float32), "examples": 3}))
    ['weights']
    """

    def long(part: Part) -> bool:
        return (isinstance(part, np.ndarray) and len(part) >= SHORTEST) or isinstance(part, Positions)

    return {name: part for name, part in parts.items() if long(part)}


class ReferenceStore:
    """References by the hexadecimal text of their fingerprint. Several threads, such as those that decode replies, may
    use one store.

    A store that `reads_only` is a worker's: its folder is the server's, who alone knows what is still needed. It writes
    and removes nothing there, and reads again what it no longer has in memory.

    >>> store = ReferenceStore()
    >>> name = store.add(Reference.of({"weights": np.ones(3, np.float32)}))
    >>> store.find(bytes.fromhex(name)).parts["weights"]
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(self, folder: Path | None = None, hot_bytes: int = HOT_BYTES, reads_only: bool = False) -> None:
        self._files = NamedFiles(NAMES, folder)
        self._reads_only = reads_only
        self._round: int | None = None
        self._limit = hot_bytes
        self._hot: dict[str, Reference] = {}
        self._total = 0
        self._lock = threading.RLock()
        """Held while what is in memory changes, or its order."""

    @property
    def folder(self) -> Path:
        """Where references beyond the budget are files."""
        return self._files.folder

    @property
    def held(self) -> tuple[int, int]:
        """How many references are in memory, and their bytes."""
        return len(self._hot), self._total

    def settle(self, folder: Path) -> None:
        """Keep files in `folder` from now on."""
        self._files.settle(folder)

    def read_from(self, folder: Path, round: int) -> None:
        """Find in `folder` what is not in memory. What turns of another round have read is forgotten: few downlinks
        refer to it again."""
        self._files.look_into(folder)
        if round != self._round:
            self.keep_only(())
        self._round = round

    def keep_within(self, hot_bytes: int) -> None:
        """Keep so many bytes in memory from now on."""
        self._limit = hot_bytes

    def add(self, reference: Reference) -> str:
        """Hold a reference; returns its name."""
        name = reference.fingerprint.hex()
        with self._lock:
            if name not in self._hot:
                self._hot[name] = reference
                self._total += _bytes(reference)
                while self._total > self._limit and len(self._hot) > 1:
                    oldest = next(iter(self._hot))
                    self._write(oldest)
                    self._total -= _bytes(self._hot.pop(oldest))
        return name

    def find(self, fingerprint: bytes) -> Reference | None:
        """The reference with this fingerprint, None where there is none."""
        name = fingerprint.hex()
        with self._lock:
            if name in self._hot:
                self._hot[name] = self._hot.pop(name)
                return self._hot[name]
        try:
            found: _File = unpack((self.folder / name).read_bytes(), _File)
        except (OSError, RunError):
            return None
        reference = Reference.of(found.parts)
        if reference.fingerprint != fingerprint:
            return None
        with self._lock:
            self._files.note(name)
            self.add(reference)
        return reference

    def publish(self, fingerprints: Iterable[bytes]) -> None:
        """Have these references as files, which other processes can read."""
        for fingerprint in fingerprints:
            self._write(fingerprint.hex())

    def _write(self, name: str) -> None:
        with self._lock:
            if not self._reads_only and name in self._hot and name not in self._files.names:
                self._files.write(name, pack(_File(dict(self._hot[name].parts))))

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the other references in memory."""
        with self._lock:
            for name in [name for name in self._hot if name not in names]:
                self._total -= _bytes(self._hot.pop(name))

    def publish_all(self, names: Collection[str]) -> list[Path]:
        """Have these references as files; returns those, and their folder, that may not be on the disk yet."""
        for name in [name for name in self._hot if name in names]:
            self._write(name)
        return self._files.take_unsynced(names)

    def sweep(self, names: Collection[str]) -> None:
        """Remove the files of other references."""
        if not self._reads_only:
            self._files.sweep(names)

    def close(self) -> None:
        """Remove the files."""
        self._files.close()


def _bytes(reference: Reference) -> int:
    arrays = (part.indices if isinstance(part, Positions) else part for part in reference.parts.values())
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


@dataclass(frozen=True)
class _File:
    parts: dict[str, Part]
