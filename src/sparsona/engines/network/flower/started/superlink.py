"""flower-superlink that serves other machines what nodes need, and nothing else.

Flower serves nodes, runs and administration on one port. Its administration has no password: who reaches it can submit
and stop runs, read their logs and remove nodes. So that is left to this machine.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from sparsona_entry import command
from sqlalchemy import event
from sqlalchemy.pool import Pool
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

FOR_NODES = "/v1/fleet/"
MOST_BODY = 2**25
"""Bytes of one request. Flower moves messages in pieces of 5 MB, and reads a request before it knows whose it is."""
HALF = 30.0
"""Seconds in which a request's head, and each further part of its body, must arrive."""
LOCKED = 60.0
"""Seconds."""
THIS_MACHINE = ("127.0.0.1", "::1", "::ffff:127.0.0.1")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def guarded(app: App) -> App:
    """The same app, which answers other machines only where nodes ask, and reads no endless request."""

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
            await app(scope, _bounded(receive), send)

    return answer


async def _refuse(send: Send, status: int, why: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why})


def _declared(scope: Scope) -> int:
    """The length that a request says it has; 0 where it does not say."""
    said = dict(scope.get("headers", ())).get(b"content-length", b"0")
    return int(said) if said.isdigit() and len(said) < 20 else 0 if not said else MOST_BODY + 1


def _bounded(receive: Receive) -> Receive:
    """The parts of a request: the caller is gone where they are too many, or where one does not arrive in time."""
    got = 0
    ended = False

    async def part() -> MutableMapping[str, Any]:
        nonlocal got, ended
        if ended:  # what is waited for now is the end of the connection, which may take as long as the answer
            return await receive()
        try:
            found = await asyncio.wait_for(receive(), HALF)
        except TimeoutError:
            return {"type": "http.disconnect"}
        got += len(found.get("body", b""))
        ended = not found.get("more_body", False)
        return found if got <= MOST_BODY else {"type": "http.disconnect"}

    return part


class Impatient(HttpToolsProtocol):  # type: ignore[misc]
    """Closes a connection on which a request has begun, or should have, and its head does not arrive."""

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
        """Wait for a head where no request is being answered."""
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting and self._half is not None:
            self._half.cancel()
            self._half = None
        elif waiting and self._half is None:
            self._half = self.loop.call_later(HALF, self.transport.close)


def _from_here(scope: Scope) -> bool:
    """Whether a request comes from this machine: by loopback, or from the very address that it went to."""
    client, server = scope.get("client"), scope.get("server")
    return client is not None and (client[0] in THIS_MACHINE or (server is not None and client[0] == server[0]))


def wait_for_locks() -> None:
    """Let each connection to a database wait `LOCKED` seconds for a lock. Flower's wait five.

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
        # What a proxy says of a caller's address counts for nothing: anyone can write such a header.
        run(guarded(app), **{**settings, "proxy_headers": False, "http": Impatient})

    uvicorn.run = run_guarded
    command("flower-superlink")()


if __name__ == "__main__":
    main()
