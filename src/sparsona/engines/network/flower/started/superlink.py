"""flower-superlink that serves only the requests of nodes to other machines.

Flower serves nodes, runs and administration on one port. Its administration has no password: every caller can submit
and stop runs, read their logs and remove nodes. So only this machine may use it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from google.protobuf.message import DecodeError, Message
from sparsona_entry import command
from sqlalchemy import event
from sqlalchemy.pool import Pool
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

FOR_NODES = "/v1/fleet/"
REQUESTS = {
    "/v1/fleet/pull-messages": PullMessagesRequest,
    "/v1/fleet/send-node-heartbeat": SendNodeHeartbeatRequest,
    "/v1/runtime/push-messages": PushAppMessagesRequest,
}
"""The requests of idle nodes, and the request by which the run sends messages to nodes."""
LOOKED_UP = 30.0  # seconds after which a node's poll is passed to Flower in any case
NOTED = 12.0  # Seconds between two heartbeats that are passed to Flower. It takes a node for dead after 24.
MOST_BODY = 2**25
"""Largest request in bytes. Flower moves messages in pieces of 5 MB, and reads a request before it knows the sender."""
HALF = 30.0  # seconds in which a request's head, and each further part of its body, must arrive
LOCKED = 60.0  # seconds that a connection to the database waits for a lock
THIS_MACHINE = ("127.0.0.1", "::1", "::ffff:127.0.0.1")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def guarded(app: App) -> App:
    """Return the app with limits: other machines reach only the paths of nodes, and requests have a largest size."""
    idle = Idle(app)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            return
        if not scope["path"].startswith(FOR_NODES) and not _from_here(scope):
            await _refuse(send, 403, b"runs are submitted on the server's own machine")
        elif _declared(scope) > MOST_BODY:
            await _refuse(send, 413, b"the request is too long")
        else:
            await idle(scope, _bounded(receive), send)

    return answer


async def _refuse(send: Send, status: int, why: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why})


def _declared(scope: Scope) -> int:
    """Return the length that a request declares; 0 if it declares none."""
    said = dict(scope.get("headers", ())).get(b"content-length", b"0")
    return int(said) if said.isdigit() and len(said) < 20 else 0 if not said else MOST_BODY + 1


def _bounded(receive: Receive) -> Receive:
    """Return the parts of a request; report a disconnected caller if they are too many, or if one is late."""
    got = 0
    ended = False

    async def part() -> MutableMapping[str, Any]:
        nonlocal got, ended
        if ended:  # the next call waits for the end of the connection, which may take as long as the answer
            return await receive()
        try:
            found = await asyncio.wait_for(receive(), HALF)
        except TimeoutError:
            return {"type": "http.disconnect"}
        got += len(found.get("body", b""))
        ended = not found.get("more_body", False)
        return found if got <= MOST_BODY else {"type": "http.disconnect"}

    return part


class Idle:
    """Answers the requests of idle nodes without Flower and its database.

    Flower needs 10 ms and a write to the database per poll or heartbeat. With 200 nodes, the run itself then gets no
    answer in time. A node has no message if its last poll found none and none was pushed since.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._pushed: Counter[int] = Counter()
        self._nothing: dict[int, tuple[int, float]] = {}
        """Per node the number of pushed messages when its last poll found nothing, and the second of that poll."""
        self._alive: dict[int, float] = {}
        """Per node the second of the last heartbeat that was passed to Flower."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = REQUESTS.get(scope["path"])
        if kind is None:
            await self._app(scope, receive, send)
            return
        parts = [await receive()]
        while parts[-1].get("more_body", False):
            parts.append(await receive())
        left = iter(parts)

        async def again() -> MutableMapping[str, Any]:
            return next(left, None) or await receive()

        try:
            asked = kind.FromString(b"".join(part.get("body", b"") for part in parts))
        except DecodeError:  # Flower has an answer to that
            await self._app(scope, again, send)
            return
        if kind is PullMessagesRequest:
            await self._poll(asked.node.node_id, scope, again, send)
        elif kind is SendNodeHeartbeatRequest:
            await self._heartbeat(asked.node.node_id, scope, again, send)
        else:
            try:
                await self._app(scope, again, send)
            finally:
                self._pushed.update(one.metadata.dst_node_id for one in asked.messages_list)

    async def _poll(self, node: int, scope: Scope, receive: Receive, send: Send) -> None:
        pushed, now = self._pushed[node], time.monotonic()
        count, at = self._nothing.get(node, (-1, 0.0))
        if count == pushed and now - at < LOOKED_UP:
            await _answer(send, PullMessagesResponse())
            return
        status, size = await self._passed(scope, receive, send)
        if status == 200 and not size:
            self._nothing[node] = pushed, now

    async def _heartbeat(self, node: int, scope: Scope, receive: Receive, send: Send) -> None:
        now = time.monotonic()
        if now - self._alive.get(node, -NOTED) < NOTED:
            await _answer(send, SendNodeHeartbeatResponse(success=True))
            return
        status, _ = await self._passed(scope, receive, send)
        if status == 200:  # only now: Flower has checked the signature
            self._alive[node] = now

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, int]:
        """Pass on Flower's answer; return its status and length."""
        status = size = 0

        async def watched(part: MutableMapping[str, Any]) -> None:
            nonlocal status, size
            status, size = part.get("status", status), size + len(part.get("body", b""))
            await send(part)

        await self._app(scope, receive, watched)
        return status, size


async def _answer(send: Send, answer: Message) -> None:
    body = answer.SerializeToString()
    headers = [(b"content-type", b"application/protobuf"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class HeadTimeout(HttpToolsProtocol):  # type: ignore[misc]
    """Closes a connection if the head of a request does not arrive in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._half: Any = None
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._half is not None:
            self._half.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the timeout for a head while no request is being answered."""
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting and self._half is not None:
            self._half.cancel()
            self._half = None
        elif waiting and self._half is None:
            self._half = self.loop.call_later(HALF, self.transport.close)


def _from_here(scope: Scope) -> bool:
    """True if a request comes from this machine: by loopback, or from the same address that it went to."""
    client, server = scope.get("client"), scope.get("server")
    return client is not None and (client[0] in THIS_MACHINE or (server is not None and client[0] == server[0]))


def wait_for_locks() -> None:
    """Let each connection to a database wait `LOCKED` seconds for a lock. Flower waits five.

    With many nodes that is too short: requests end as "database is locked", and the loop's task expires.
    """

    def checked_out(connection: Any, record: Any, proxy: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(1000 * LOCKED)}")
        cursor.close()

    event.listen(Pool, "checkout", checked_out)


def main() -> None:
    wait_for_locks()
    os.umask(0o077)  # the database holds the frames of all clients
    os.environ["SPARSONA_SUPERLINK"] = str(os.getpid())  # the loop of a run ends with this process
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run = uvicorn.run

    def run_guarded(app: App, **settings: Any) -> None:
        # Ignore proxy headers about a caller's address: anyone can write them.
        # Keep the connection of a node that asks every ten seconds: a new one costs more than the answer.
        kept = {"timeout_keep_alive": int(HALF)}
        run(guarded(app), **{**settings, **kept, "proxy_headers": False, "http": HeadTimeout})

    uvicorn.run = run_guarded
    command("flower-superlink")()


if __name__ == "__main__":
    main()
