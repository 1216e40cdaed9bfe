"""Checkpoints that survive kill -9 at any moment: new files first, then one manifest, replaced in one step."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from sparsona.errors import RunError
from sparsona.method import ClientId
from sparsona.state import pack, unpack
from sparsona.store import ClientStore


@dataclass(frozen=True)
class Flight:
    """A reply under way: it answers the downlink of `round` and is due in round `due`."""

    due: int
    client: ClientId
    round: int
    frame: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Position:
    """Where the server's loop stands between two rounds; `done` rounds are complete."""

    done: int
    server: Any
    flights: tuple[Flight, ...]
    acked: dict[ClientId, int]
    records: int
    seconds: float


@dataclass(frozen=True)
class _Loop:
    flights: tuple[Flight, ...]


class Keeper:
    """Writes and reads the checkpoint of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manifest = folder / "manifest.json"
        self._files: dict[ClientId, str] = {}

    def save(self, position: Position, store: ClientStore) -> None:
        """Write what has changed, then make it count."""
        (self.folder / "clients").mkdir(parents=True, exist_ok=True)
        for client in sorted(store.changed):
            name = f"clients/{quote(client, safe='')}.{position.done}"
            (self.folder / name).write_bytes(pack(store.get(client)))
            self._files[client] = name
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
            "clients": self._files,
        }
        write_atomically(self._manifest, json.dumps(manifest))
        store.changed.clear()
        self._sweep({server, loop, *self._files.values()})

    def load(self, server: Any, store: ClientStore, clients: Sequence[ClientId]) -> Position | None:
        """The last checkpoint, its clients' states put into `store`. None where no round was completed.

        `server` and the store's fresh states tell the types to be read.
        """
        if not self._manifest.exists():
            return None
        try:
            manifest = json.loads(self._manifest.read_text())
            kind = type(store.get(clients[0]))
            for client, name in manifest["clients"].items():
                store.restore(client, unpack((self.folder / name).read_bytes(), kind))
            self._files = dict(manifest["clients"])
            loop: _Loop = unpack((self.folder / manifest["loop"]).read_bytes(), _Loop)
            return Position(
                done=manifest["done"],
                server=unpack((self.folder / manifest["server"]).read_bytes(), type(server)),
                flights=loop.flights,
                acked=manifest["acked"],
                records=manifest["records"],
                seconds=manifest["seconds"],
            )
        except (OSError, ValueError, KeyError) as error:
            raise RunError(
                f"the checkpoint in {self.folder} is damaged ({error}): run again without --resume"
            ) from None

    def _sweep(self, wanted: set[str]) -> None:
        """Remove the files that no manifest names any more."""
        for path in [*self.folder.iterdir(), *(self.folder / "clients").iterdir()]:
            if path.is_file() and path != self._manifest and str(path.relative_to(self.folder)) not in wanted:
                path.unlink()


def write_atomically(path: Path, text: str) -> None:
    """The file has its old or its new content, whatever happens in between."""
    partial = path.with_name(path.name + ".part")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)
