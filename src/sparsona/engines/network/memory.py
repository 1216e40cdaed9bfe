"""A node's files for one run on its owner's disk: the client's memory, its last replies, the received references.

After a crash at any moment the files of the last finished turn are there. Files are written under new names, and a
manifest, replaced atomically, names the valid ones.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sparsona.errors import DataError, RunError, WireError, one_line
from sparsona.federation.delivery import ClientMemory, Order
from sparsona.federation.references import ReferenceStore, usable
from sparsona.files import sync, write_atomically, write_new
from sparsona.message import Message
from sparsona.runs.state import digest, pack
from sparsona.runs.store import read_state
from sparsona.wire import Reference

MANIFEST = "manifest.json"
MOST_REFERENCES = 4
"""References kept while no reply is acknowledged. If one is missing, the server sends the whole downlink."""
MOST_ROLLBACKS = 20  # limit on how often a server may go back in a run and ask for other work from the same state
SCORES_PER_ROUND = 3
"""Limit on evaluations per round. A server that may evaluate any number of models on the same rows can infer them."""


@dataclass(frozen=True)
class Turn:
    """A completed turn: its order, the hash of its downlink, the memory before it, and the reply."""

    order: Order
    down: str
    before: str
    reply: str
    head: dict[str, Any]


@dataclass(frozen=True)
class _TurnList:
    memory: str
    number: int
    turns: tuple[Turn, ...]
    references: tuple[tuple[Order, str], ...]
    rows: str = ""
    rollbacks: int = 0
    scored: int = 0


_AS_JSON = TypeAdapter(_TurnList)


class NodeMemory:
    """A client's memory on disk. `fresh` is the memory before the first turn, `rows` the hash of the owner's rows.

    The hash is kept with the first turn: from then on the memory belongs to these rows (:func:`check_rows`).
    """

    def __init__(self, folder: Path, fresh: ClientMemory, client: str, rows: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._fresh, self._client, self.rows = folder, fresh, client, rows
        self._file = folder / MANIFEST
        self._manifest = _manifest_of(folder)
        self._memory: ClientMemory | None = None
        self.references = ReferenceStore()
        self.references.files.adopt(folder / "references", {name for _, name in self._manifest.references})

    @property
    def memory(self) -> ClientMemory:
        if self._memory is None:
            file = self._manifest.memory
            self._memory = read_state(self._folder / file, self._fresh, self._client) if file else self._fresh
        return self._memory

    @property
    def digest(self) -> str:
        """Return the sha256 of the client's packed memory."""
        return digest(self.memory)

    def answered(self, order: Order, down: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Return the earlier reply to the same downlink, if any: a repeated order gets the same bytes."""
        for turn in self._manifest.turns:
            if turn.order == order and turn.down == _hash(down):
                return turn.head, (self._folder / turn.reply).read_bytes()
        return None

    def roll_back(self, order: Order) -> None:
        """Forget the turns from this order on, if there are any: the server has gone back in the run."""
        for number, turn in enumerate(self._manifest.turns):
            if turn.order >= order:
                if self._manifest.rollbacks >= MOST_ROLLBACKS:
                    raise WireError(f"the server has gone back {MOST_ROLLBACKS} times in this run: begin another one")
                self._memory = None
                back, turns = self._manifest.rollbacks + 1, self._manifest.turns[:number]
                self._write(replace(self._manifest, memory=turn.before, turns=turns, rollbacks=back))
                return

    def count_scored(self, rounds: int) -> None:
        """Count an evaluation; refuse it if a run of `rounds` rounds needs fewer."""
        if self._manifest.scored >= SCORES_PER_ROUND * (rounds + MOST_ROLLBACKS):
            raise WireError("the server has asked for more evaluations than this run needs")
        self._write(replace(self._manifest, scored=self._manifest.scored + 1))

    def record(self, order: Order, down: bytes, memory: ClientMemory, head: dict[str, Any], reply: bytes) -> None:
        """Store a turn. The memory changes only when the turn is on disk."""
        number = self._manifest.number + 1
        if not memory.worth_writing(self.memory):
            memory, kept, files = self.memory, self._manifest.memory, {}
        else:
            kept = f"memory.{number}"
            files = {kept: pack(memory)}
        replied = f"reply.{number}"
        files[replied] = reply
        for name, data in files.items():
            write_new(self._folder / name, data)
        sync(self._folder / name for name in files)
        turn = Turn(order, _hash(down), self._manifest.memory, replied, head)
        same_round = tuple(one for one in self._manifest.turns if one.order[0] == order[0])
        self._write(replace(self._manifest, memory=kept, number=number, turns=(*same_round, turn), rows=self.rows))
        self._memory = memory

    def keep_models(self, memory: ClientMemory) -> None:
        """Store the memory after an evaluation, in which the client may have found its best model so far."""
        if not memory.worth_writing(self.memory):
            return
        number = self._manifest.number + 1
        file = self._folder / f"memory.{number}"
        write_new(file, pack(memory))
        sync([file])
        self._write(replace(self._manifest, memory=file.name, number=number))
        self._memory = memory

    def hold(self, down: Message) -> None:
        """Keep a downlink as a reference for the next ones, and remove references that cannot be used any more."""
        parts = usable(down.parts)
        acked = down.stamp.acked
        held = [(o, n) for o, n in self._manifest.references if o != down.stamp.order and (acked is None or o >= acked)]
        if parts:
            reference = Reference.of(parts)
            name = self.references.add(reference)
            self.references.publish([reference.fingerprint])
            held.append((down.stamp.order, name))
        names = {name for _, name in held[-MOST_REFERENCES:]}
        self._write(replace(self._manifest, references=tuple(held[-MOST_REFERENCES:])))
        self.references.files.keep(names)
        self.references.files.sweep()

    def _write(self, manifest: _TurnList) -> None:
        write_atomically(self._file, _AS_JSON.dump_json(manifest))
        self._manifest = manifest
        wanted = {manifest.memory, *(name for turn in manifest.turns for name in (turn.before, turn.reply))}
        for path in self._folder.glob("*.*"):
            if path.name.startswith(("memory.", "reply.")) and path.name not in wanted:
                path.unlink()


def check_rows(folder: Path, client: str, rows: str) -> None:
    """Raise `DataError` if the client has begun this run with other rows, compared by their hash."""
    if _manifest_of(folder).rows not in ("", rows):
        raise DataError(
            f"the rows of {client} are not those with which it began this run: give it the same file, with its columns "
            "in the same order, --missing and --decimal, or let the organiser begin another run (deploy --name)"
        )


def _manifest_of(folder: Path) -> _TurnList:
    file = folder / MANIFEST
    if not file.exists():
        return _TurnList("", 0, (), ())
    try:
        return _AS_JSON.validate_json(file.read_bytes())
    except ValueError as error:
        raise RunError(f"{file} is damaged ({one_line(error)}): start the node with another --state") from None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
