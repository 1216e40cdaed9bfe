"""flower-superlink that serves other machines what nodes need, and nothing else.

Flower serves nodes, runs and administration on one port. Its administration has no password: who reaches it can submit
and stop runs, read their logs and remove nodes. So that is left to this machine.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from flwr.superlink.cli import flower_superlink

FOR_NODES = "/v1/fleet/"
THIS_MACHINE = ("127.0.0.1", "::1", "::ffff:127.0.0.1")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def guarded(app: App) -> App:
    """The same app, which answers other machines only where nodes ask."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"].startswith(FOR_NODES) or _from_here(scope):
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"runs are submitted on the server's own machine"})

    return answer


def _from_here(scope: Scope) -> bool:
    """Whether a request comes from this machine: by loopback, or from the very address that it went to."""
    client, server = scope.get("client"), scope.get("server")
    return client is not None and (client[0] in THIS_MACHINE or (server is not None and client[0] == server[0]))


def main() -> None:
    os.umask(0o077)  # the database holds the frames of all clients
    os.environ["SPARSONA_SUPERLINK"] = str(os.getpid())  # the loop of a run ends with this process
    run = uvicorn.run

    def run_guarded(app: App, **settings: Any) -> None:
        run(guarded(app), **settings)

    uvicorn.run = run_guarded
    flower_superlink()


if __name__ == "__main__":
    main()
