"""The downlinks that clients hold, by content; a frame may be coded against them.

A broadcast is held once for all clients. The most recent references are in memory up to a budget, the others in files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sparsona.errors import MissingReference, RunError
from sparsona.message import Part, Positions
from sparsona.runs.state import pack, unpack
from sparsona.runs.store import SpillStore
from sparsona.wire import Reference

HOT_BYTES = 256 * 2**20  # bytes kept in memory; the least recently used references beyond it go to disk
NAMES = "[0-9a-f]{16}"  # pattern of the names of reference files
SHORTEST = 64  # shortest vector, in numbers, that is kept as a reference


def usable(parts: Mapping[str, Part]) -> dict[str, Part]:
    """Return the parts that another message may be coded against: long vectors, and sets of positions.

    >>> list(usable({"weights": np.zeros(100, np.float32), "examples": 3}))
    ['weights']
    """

    def long(part: Part) -> bool:
        return (isinstance(part, np.ndarray) and len(part) >= SHORTEST) or isinstance(part, Positions)

    return {name: part for name, part in parts.items() if long(part)}


class ReferenceStore:
    """References by the hexadecimal text of their fingerprint; threads may share one store.

    >>> store = ReferenceStore()
    >>> name = store.add(Reference.of({"weights": np.ones(3, np.float32)}))
    >>> store.find(bytes.fromhex(name)).parts["weights"]
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(self, hot_bytes: int = HOT_BYTES) -> None:
        self.files: SpillStore[Reference] = SpillStore(NAMES, hot_bytes, _bytes, _packed)

    def add(self, reference: Reference) -> str:
        """Hold a reference and return its name."""
        name = reference.fingerprint.hex()
        if self.files.find(name) is None:
            self.files.put(name, reference)
        return name

    def find(self, fingerprint: bytes) -> Reference | None:
        """Return the reference with this fingerprint, or None."""
        name = fingerprint.hex()
        held = self.files.find(name)
        if held is not None:
            return held
        data = self.files.read(name)
        try:
            found: _File | None = None if data is None else unpack(data, _File)
        except RunError:
            return None
        if found is None:
            return None
        reference = Reference.of(found.parts)
        if reference.fingerprint != fingerprint:
            return None
        self.add(reference)
        return reference

    def held(self, fingerprint: bytes) -> Reference:
        """Return the reference with this fingerprint, or raise `MissingReference`."""
        found = self.find(fingerprint)
        if found is None:
            raise MissingReference(fingerprint)
        return found

    def publish(self, fingerprints: Iterable[bytes]) -> None:
        """Write these references to files that other processes can read."""
        self.files.save(fingerprint.hex() for fingerprint in fingerprints)


def _bytes(reference: Reference) -> int:
    arrays = (part.indices if isinstance(part, Positions) else part for part in reference.parts.values())
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


@dataclass(frozen=True)
class _File:
    parts: dict[str, Part]


def _packed(name: str, reference: Reference) -> bytes:
    return pack(_File(dict(reference.parts)))
