"""Checkpoints that survive kill -9 at any moment: new files first, then one manifest, replaced in one step."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.errors import RunError
from sparsona.method import ClientId
from sparsona.runs.state import pack, unpack
from sparsona.runs.store import ClientStore


@dataclass(frozen=True)
class PendingReply:
    """A reply under way: it answers the downlink of `round` and is due in round `due`, not before the second `at`."""

    due: int
    client: ClientId
    round: int
    frame: npt.NDArray[np.uint8]
    at: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """Where the server's loop stands between two rounds; `done` rounds are complete, `clock` is the simulated time."""

    done: int
    server: Any
    flights: tuple[PendingReply, ...]
    acked: dict[ClientId, int]
    records: int
    seconds: float
    clock: float = 0.0


@dataclass(frozen=True)
class Progress:
    """What the last checkpoint has seen: complete rounds, bytes of records.jsonl, seconds spent."""

    done: int
    records: int
    seconds: float


@dataclass(frozen=True)
class _Loop:
    flights: tuple[PendingReply, ...]


FIRST = ("server.1", "loop.1", "manifest.json.part")
"""What a crash may leave before there is a manifest."""


class Checkpointer:
    """Writes and reads the checkpoint of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clients = folder / "clients"
        self._manifest = folder / "manifest.json"

    def save(self, position: Snapshot, store: ClientStore) -> None:
        """Write what has changed, then make it count, then remove what it replaces."""
        versions = store.settle(self.clients)
        server, loop = f"server.{position.done}", f"loop.{position.done}"
        (self.folder / server).write_bytes(pack(position.server))
        (self.folder / loop).write_bytes(pack(_Loop(position.flights)))
        manifest = {
            "done": position.done,
            "server": server,
            "loop": loop,
            "acked": position.acked,
            "records": position.records,
            "seconds": position.seconds,
            "clock": position.clock,
            "clients": versions,
        }
        write_atomically(self._manifest, json.dumps(manifest))
        store.sweep()
        self._sweep({server, loop})

    def load(self, server: Any, store: ClientStore) -> Snapshot | None:
        """The last checkpoint, `store` continuing with its clients' states. None where no round was completed.

        `server` tells the type to be read.
        """
        if not self._manifest.exists():
            if any(path.name not in FIRST for path in self.folder.glob("*.*")):
                raise RunError(f"{self._manifest} is missing: run it again into another --out")
            return None
        try:
            manifest = json.loads(self._manifest.read_text(encoding="utf-8"))
            loop: _Loop = unpack((self.folder / manifest["loop"]).read_bytes(), _Loop)
            position = Snapshot(
                done=int(manifest["done"]),
                server=unpack((self.folder / manifest["server"]).read_bytes(), type(server)),
                flights=loop.flights,
                acked=dict(manifest["acked"]),
                records=int(manifest["records"]),
                seconds=float(manifest["seconds"]),
                clock=float(manifest["clock"]),
            )
            store.adopt(self.clients, manifest["clients"])  # sweeps: not before all else is found good
            return position
        except RunError as error:
            raise RunError(f"{self.folder}: {error}") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"the checkpoint in {self.folder} is damaged ({error}): run it again into another --out"
            ) from None

    def progress(self) -> Progress:
        """How far the run has come; nowhere, where no round was completed."""
        try:
            found = json.loads(self._manifest.read_text(encoding="utf-8"))
            return Progress(int(found["done"]), int(found["records"]), float(found["seconds"]))
        except FileNotFoundError:
            return Progress(0, 0, 0.0)
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self._manifest} is damaged ({error}): run it again into another --out") from None

    def _sweep(self, wanted: set[str]) -> None:
        """Remove the server's older files."""
        for path in self.folder.iterdir():
            if path.is_file() and path != self._manifest and path.name not in wanted:
                path.unlink()


def write_atomically(path: Path, text: str) -> None:
    """The file has its old or its new content, whatever happens in between."""
    partial = path.with_name(path.name + ".part")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)
