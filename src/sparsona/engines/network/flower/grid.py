"""Flower as a carrier: messages over its Grid, and the app that a SuperLink runs for a submission."""

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Protocol

from sparsona.engines.network.carrier import Parcel, Returned
from sparsona.engines.network.flower.processes import PROBLEM
from sparsona.engines.network.flower.server import read_nodes
from sparsona.engines.network.flower.started.sparsona_records import NUMBER, BadParcel, from_record, to_record
from sparsona.engines.network.serverapp import NetworkRun, carry_out
from sparsona.errors import InputError, RunError, SparsonaError, one_line
from sparsona.method import ClientId

log = logging.getLogger(__name__)

HOME = "SPARSONA_SERVER"
"""The environment variable that names the folder of `sparsona server`: nodes.json and runs/ are in it."""
FETCHERS = 8  # number of replies that are fetched at the same time
AT_ONCE = 8  # Messages per push. Nodes see a message before its content arrives, and give it up after a while.
GIVE_UP = 120.0  # seconds without any answer of the SuperLink after which the run ends
PATIENCE = 0.2  # seconds that a pull lasts at most; later replies come out of the next pull


class MessageGrid(Protocol):
    """The part of Flower's Grid that is used."""

    _client: Any  # the Grid's client of the SuperLink, once it is connected

    @property
    def _runtime_client(self) -> Any:
        """The same client; connects first if necessary."""

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str | None]: ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]: ...


class FlowerCarrier:
    """Sends parcels as Flower messages. A reply belongs to the message that it answers, whatever sender it names.

    Flower blocks while a node uploads its reply, and for minutes if the node dies meanwhile. So the SuperLink is asked
    for the list of replies, and each reply is fetched in its own thread: none waits for another.
    """

    idle, silence = 1.0, 10.0

    def __init__(self, grid: MessageGrid, nodes: Mapping[ClientId, int]) -> None:
        """`nodes` are the registered clients' numbers at the SuperLink."""
        self._grid, self._nodes, self.clients = grid, nodes, sorted(nodes)
        self._fetching: set[str] = set()
        self._fetchers = Semaphore(FETCHERS)
        self._failing: float | None = None
        """The second on the clock of the first of the failed calls; None if the last call worked."""
        self._came: SimpleQueue[Returned] = SimpleQueue()

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        from flwr.app import Message

        found: list[str | None] = []
        while len(found) < len(parcels):
            messages = [
                Message(
                    content=to_record({**one.head, NUMBER: one.number}, one.body),
                    dst_node_id=self._nodes[one.client],
                    message_type="query",
                    ttl=one.ttl,
                )
                for one in parcels[len(found) : len(found) + AT_ONCE]
            ]
            try:
                found += [name or None for name in self._grid.push_messages(messages)]
            except Exception as error:  # noqa: BLE001  (Flower and its HTTP library have their own errors)
                self._failed(error)
                return found + [None] * (len(parcels) - len(found))
            self._failing = None
        return found

    def pull(self, names: Sequence[str]) -> list[Returned]:
        asked = [name for name in names if name not in self._fetching]
        try:
            there = self._named(asked) if asked else []
        except Exception as error:  # noqa: BLE001
            self._failed(error)
            return []
        self._failing = None
        for reply in there:
            self._fetching.add(reply.messages_list[0].metadata.reply_to_message_id)
            Thread(target=self._fetch, args=(reply,), daemon=True).start()
        found: list[Returned] = []
        until = time.monotonic() + PATIENCE
        while self._fetching and (left := until - time.monotonic()) > 0:
            try:
                came = self._came.get(timeout=left)
            except Empty:
                break
            self._fetching.discard(came.name)
            found.append(came)
        return found

    def _failed(self, error: Exception) -> None:
        """Note a failed call. A SuperLink under load is asked again, for `GIVE_UP` seconds."""
        now = time.monotonic()
        if self._failing is None:
            log.warning("the SuperLink does not answer (%s); it is asked again", one_line(error)[:300])
            self._failing = now
        if now - self._failing >= GIVE_UP:
            raise RunError(
                f"the SuperLink has not answered for {GIVE_UP:.0f} s ({one_line(error)[:300]}): see superlink.log, "
                "start fewer nodes, and deploy again: the run goes on"
            ) from error

    def _named(self, names: Sequence[str]) -> list[Any]:
        """Return the replies that have arrived, without contents, each as its own answer of the SuperLink."""
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse

        there = self._grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=names))
        pairs = zip(there.messages_list, there.message_object_trees, strict=True)
        return [PullAppMessagesResponse(messages_list=[one], message_object_trees=[tree]) for one, tree in pairs]

    def _fetch(self, reply: Any) -> None:
        """Fetch a reply. The SuperLink names it only once: after a failed fetch the message is sent again."""
        name = reply.messages_list[0].metadata.reply_to_message_id
        try:
            with self._fetchers:
                grid = copy(self._grid)
                grid._client = _Replayed(self._grid._runtime_client, reply)
                (message,) = grid.pull_messages([])
            self._came.put(self._answer(message))
        except Exception as error:  # noqa: BLE001
            self._came.put(Returned(name, why=f"its reply was not fetched: {one_line(error)[:300]}", lost=True))

    def _answer(self, message: Any) -> Returned:
        name = message.metadata.reply_to_message_id
        if message.has_error():
            return Returned(name, why=f"Flower says: {message.error.reason or message.error.code}", lost=True)
        try:
            head, body = from_record(message.content)
        except BadParcel as error:
            return Returned(name, why=str(error))
        return Returned(name, head, body)


class _Replayed:
    """A Grid's connection to the SuperLink that names the one reply to fetch."""

    def __init__(self, client: Any, reply: Any) -> None:
        self._client, self._reply = client, reply

    def PullMessages(self, request: Any) -> Any:
        return self._reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def app(grid: MessageGrid, context: Any) -> None:
    """Run the experiment of a submission; the SuperLink calls this. Only the submission's settings are read.

    An error is raised again, so that the run counts as failed. `deploy run` shows its line.
    """
    try:
        config, home = context.run_config, os.environ.get(HOME)
        if not home:
            raise InputError("this SuperLink was not started by sparsona server: start that, and deploy again")
        nodes = {client: node.number for client, node in read_nodes(Path(home)).items()}
        experiment, name, patience = str(config["experiment"]), str(config["name"]), float(config["patience"])
        carrier, fewest = FlowerCarrier(grid, nodes), int(config["fewest"])
        carry_out(NetworkRun(carrier, Path(home), experiment, name, patience, fewest))
    except SparsonaError as error:
        print(f"{PROBLEM}{one_line(error)}", flush=True)
        raise
    except OSError as error:
        where = one_line(error.filename or "a file")
        print(f"{PROBLEM}cannot read or write {where}: {error.strerror}; mend it, and deploy again", flush=True)
        raise
