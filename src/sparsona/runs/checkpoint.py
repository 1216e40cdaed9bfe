"""Checkpoints that survive kill -9 at any moment: new files first, then one manifest, replaced in one step.

The manifest holds the sha256 of every file of the checkpoint and of itself. The files are on the disk before the
manifest names them. Nothing is removed before all that a checkpoint names has been read and found as it was written.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sparsona.errors import RunError
from sparsona.files import check_plain, read_regular, sync, write_new
from sparsona.method import ClientId
from sparsona.runs.resting import read_resting, resting_names
from sparsona.runs.state import pack, unpack
from sparsona.runs.store import ClientStore, SpillStore, Stored, check_sha256

L = TypeVar("L")
ANEW = "run it again into another --out"


@dataclass(frozen=True)
class Snapshot(Generic[L]):
    """A run between two rounds: `done` rounds are complete, `records` bytes of the log belong to them.

    `server` is the method's state, `loop` the federation's own, `seconds` the time spent so far.
    """

    done: int
    server: Any
    loop: L
    records: int
    seconds: float


@dataclass(frozen=True)
class Progress:
    """The progress at the last checkpoint: complete rounds, bytes of records.jsonl and their hash, seconds spent."""

    done: int
    records: int
    seconds: float
    log: str = ""


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class _Manifest(BaseModel):
    """The content of manifest.json; `clients` has the version and the hash of each client's state."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    done: Count
    server: Sha256
    loop: Sha256
    records: Count
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    log: Sha256
    clients: dict[ClientId, Annotated[list[Count | Sha256], Field(min_length=2, max_length=2)]]
    sha256: str = ""

    def hashed(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude={"sha256"}).encode()).hexdigest()


FIRST = ("server.1", "loop.1", "manifest.json.part")  # files that a crash may leave before there is a manifest
OURS = re.compile(r"(server|loop)\.[0-9]+")  # pattern of the files beside the manifest; no other file is ever removed


class Checkpointer:
    """Writes and reads the checkpoint of one run. `records` is the log whose length a checkpoint names."""

    def __init__(self, folder: Path, records: Path | None = None) -> None:
        self.folder = folder
        self.records = records
        self.clients = folder / "clients"
        self.resting = folder / "resting"
        self.references = folder / "references"
        self._manifest = folder / "manifest.json"
        self._log, self._hashed = hashlib.sha256(), 0

    def save(self, snapshot: Snapshot[Any], store: ClientStore, *spilled: SpillStore[Any]) -> None:
        """Write changed files, replace the manifest, then remove the files that are no longer named.

        `spilled` are the other stores whose files the snapshot names; these are synced before the manifest.
        """
        stored = store.settle(self.clients)
        files = {f"server.{snapshot.done}": pack(snapshot.server), f"loop.{snapshot.done}": pack(snapshot.loop)}
        for name, data in files.items():
            write_new(self.folder / name, data)
        server, loop = (hashlib.sha256(data).hexdigest() for data in files.values())
        manifest = _Manifest(
            done=snapshot.done,
            server=server,
            loop=loop,
            records=snapshot.records,
            seconds=snapshot.seconds,
            log=self._hash_log(snapshot.records),
            clients={client: [state.version, state.sha256] for client, state in stored.items()},
        )
        signed = manifest.model_copy(update={"sha256": manifest.hashed()})
        partial = self.folder / "manifest.json.part"
        write_new(partial, signed.model_dump_json().encode())
        ours = [*(self.folder / name for name in files), partial, self.folder]
        if self.records is not None and self.records.exists():
            ours.append(self.records)
        stores = (store.files, *spilled)
        sync([*(path for one in stores for path in one.take_unsynced()), *ours])
        partial.replace(self._manifest)
        sync([self.folder])
        for one in stores:
            one.sweep()
        for path in self.folder.iterdir():
            if path.name not in files and OURS.fullmatch(path.name):
                path.unlink()

    def _hash_log(self, length: int) -> str:
        """Return the hash of the valid bytes of the log; only bytes since the last call are read."""
        if self.records is not None and length > self._hashed:
            with self.records.open("rb") as file:
                file.seek(self._hashed)
                self._log.update(file.read(length - self._hashed))
            self._hashed = length
        return self._log.hexdigest()

    def _check_log(self, manifest: _Manifest) -> None:
        """Refuse a damaged log, and continue with its hash."""
        if self.records is None:
            return
        found = read_regular(self.records) if self.records.exists() else b""
        if len(found) < manifest.records:
            raise RunError(f"{len(found)} bytes are left of {manifest.records} in {self.records.name}: {ANEW}")
        if hashlib.sha256(found[: manifest.records]).hexdigest() != manifest.log:
            raise RunError(f"{self.records.name} is damaged, it is not as it was written: {ANEW}")
        self._log, self._hashed = hashlib.sha256(found[: manifest.records]), manifest.records

    def load(self, server: Any, loop: L, store: ClientStore, rounds: int) -> Snapshot[L] | None:
        """Return the last checkpoint, and let `store` continue with its clients' states; None before the first round.

        `server` and `loop` are examples of the types to be read; `rounds` is the number of rounds of the run.
        """
        check_plain(self.folder)
        if not self._manifest.exists():
            if any(path.name not in FIRST for path in self.folder.glob("*.*")):
                raise RunError(f"{self._manifest} is missing: {ANEW}")
            store.adopt(self.clients, {})
            return None
        try:
            manifest = self._read_manifest()
            if manifest.done > rounds:
                raise RunError(f"{manifest.done} rounds are done of {rounds}: {ANEW}")
            self._check_log(manifest)
            snapshot = Snapshot(
                done=manifest.done,
                server=self._read(f"server.{manifest.done}", manifest.server, type(server)),
                loop=self._read(f"loop.{manifest.done}", manifest.loop, type(loop)),
                records=manifest.records,
                seconds=manifest.seconds,
            )
            # all files must exist; their content is checked when they are read
            there = {path.name for path in self.resting.iterdir()} if self.resting.exists() else set()
            for name in sorted(resting_names(snapshot.server) - there):
                raise RunError(f"resting/{name}, a part of the server's state, is missing: {ANEW}")
            stored = {client: Stored(int(found[0]), str(found[1])) for client, found in manifest.clients.items()}
            store.adopt(self.clients, stored)  # removes files: not before all else is found good
            return snapshot
        except RunError as error:
            raise RunError(f"{self.folder}: {error}") from None
        except OSError as error:
            raise RunError(f"the checkpoint in {self.folder} cannot be read: {error.strerror}") from None

    def server(self, kind: type) -> Any:
        """Return the server's state in the last checkpoint; `kind` is its class."""
        manifest = self._read_manifest()
        return self._read(f"server.{manifest.done}", manifest.server, kind)

    def _read(self, name: str, sha256: str, kind: type) -> Any:
        data = check_sha256(self.folder / name, sha256, name)
        return unpack(data, kind, find=partial(read_resting, self.resting))

    def _read_manifest(self) -> _Manifest:
        try:
            manifest = _Manifest.model_validate_json(read_regular(self._manifest))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"][:1]))
            problem = f"manifest.json is damaged, or of another version ({where}: {first['msg']})"
            raise RunError(f"{problem}: {ANEW}") from None
        if manifest.sha256 != manifest.hashed():
            raise RunError(f"manifest.json is damaged, it is not as it was written: {ANEW}")
        return manifest

    def progress(self) -> Progress:
        """Return the progress of the run."""
        if not self._manifest.exists():
            return Progress(0, 0, 0.0)
        try:
            found = self._read_manifest()
        except RunError as error:
            raise RunError(f"{self.folder}: {error}") from None
        return Progress(found.done, found.records, found.seconds, found.log)
