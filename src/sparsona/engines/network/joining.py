"""The start of a run: the checked greetings of the clients, and the clients that cannot take part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from sparsona.data.schema.agreed import schema_of
from sparsona.data.schema.exchange import LIMIT, agree
from sparsona.data.schema.schema import Schema
from sparsona.data.schema.told import told_schema
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.heads import Greeting, greeting, ledger_of
from sparsona.errors import DataError, RunError, WireError, one_line
from sparsona.message import Message
from sparsona.method import ClientId
from sparsona.wire import Ledger, decode, encode

T = TypeVar("T")


class Lacking(RunError):
    """The clients that cannot take part in a run that has not begun, and why."""

    def __init__(self, reasons: Mapping[ClientId, str]) -> None:
        whom = "; ".join(f"{client} cannot take part: {reason}" for client, reason in sorted(reasons.items()))
        super().__init__(f"{whom}. Mend that and deploy again, or begin with the other clients: --fewest N")
        self.reasons = reasons


@dataclass(frozen=True)
class Joined:
    """A client that takes part, with its checked greeting."""

    told: Greeting
    published: Schema | None
    description: bytes
    ledger: Ledger

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of its rows to train, validate and test."""
        return self.told.sizes


def joined(client: ClientId, head: Head, body: bytes) -> Joined:
    """Check a client's greeting. Raises `WireError` if anything in it cannot be used."""
    told = greeting(head)
    if told.name != client:
        raise WireError(f"the node of its key calls itself {one_line(told.name[:80])!r}")
    published = None if told.published is None else told_schema(told.published)
    if (published is None) != bool(body):
        raise WireError("it tells neither a schema nor a description of its columns, or both")
    return Joined(told, published, body, ledger_of(told.ledger, body))


def common_model(clients: Mapping[ClientId, Joined]) -> str:
    """Return the model that suits all clients' data."""
    found = {client: one.told.model for client, one in clients.items()}
    return _shared(found, "its data suggest another model than the others': name one")


def agreed_schema(clients: Mapping[ClientId, Joined]) -> tuple[Schema, tuple[bytes, Ledger]]:
    """Return the common schema of all clients, and the frame that carries it; the frame is empty for shares."""
    how = "its data are of another kind than the others': give all the same columns, or shares of one set"
    ready = _shared({client: one.published for client, one in clients.items()}, how)
    if ready is not None:
        return ready, (b"", Ledger())
    described: dict[ClientId, Message] = {}
    refused: dict[ClientId, str] = {}
    for client, one in clients.items():
        try:
            described[client] = decode(one.description, LIMIT)
        except WireError as error:
            refused[client] = str(error)
    if refused:
        raise Lacking(refused)
    try:
        frame = encode(agree(described))
    except (DataError, WireError) as error:
        blamed = _to_blame(described, str(error))
        if blamed is None:
            raise
        raise Lacking({blamed: str(error)}) from None
    return schema_of(decode(frame.data, LIMIT)), (frame.data, frame.ledger)


def _shared(found: Mapping[ClientId, T], how: str) -> T:
    """Return the value of most clients; raise `Lacking` with the clients that differ."""
    several = list(found.values())
    usual = max(several, key=several.count)
    others = dict.fromkeys((client for client, one in found.items() if one != usual), how)
    if others:
        raise Lacking(others)
    return usual


def _to_blame(described: Mapping[ClientId, Message], problem: str) -> ClientId | None:
    """Return the only named client without which the others agree; None if there is not exactly one.

    A problem between two clients names both, and a client may write another one's name into its columns.
    """
    named = [client for client in described if f"client {client!r}" in problem]
    if len(named) == 1 or len(described) < 3:
        return named[0] if len(named) == 1 else None
    found = []
    for client in named:
        try:
            agree({other: one for other, one in described.items() if other != client})
        except (DataError, WireError):
            continue
        found.append(client)
    return found[0] if len(found) == 1 else None
