"""flower-supernode that asks for work at least every SPARSONA_IDLE seconds, and sooner after it had some.

Flower's own asks every three seconds, and looks for an answer every half a second.

It also reports more often that it is alive. After a node is killed, the SuperLink keeps its place for twice the
interval that the node has named. With Flower's 30 s, a restarted node could wait a minute.

It ends with its executor, so that the owner's process starts both again. Flower would wait for ever.

It ends with one line if the server refuses its signature. Flower would end without a reason.

It takes at most SPARSONA_MEMORY bytes, so that no message of the organiser can take all of the owner's memory.

It gives its tasks only to the executor that knows the token in the file SPARSONA_TOKEN, and to no other process of this
machine. Flower has such a secret (`--superexec-auth-secret-file`), but not if it starts the executor itself.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flwr.supernode.main  # noqa: F401
import httpx
from sparsona_entry import command
from sparsona_pauses import Backoff

BUSY, LONGEST = 3.0, 10.0
"""A pause is at least `BUSY` times as long as the request before it took, and at most `LONGEST` seconds."""
ALIVE = 12  # Seconds between two heartbeats. The SuperLink accepts no less than 10.
KEPT = 25.0  # Seconds that an idle connection is kept. The SuperLink closes it after 30.
SOON, ANSWER = 0.1, 0.5  # Seconds. Flower waits `ANSWER` for an answer, and longer for work.


class Sleep:
    """Replaces time.sleep in the loop of the SuperNode, which waits for work and for answers.

    A busy SuperLink answers slowly, and slow answers lengthen the pause. This keeps many nodes from overloading it.
    """

    def __init__(self, idle: float) -> None:
        self._work, self._answer = Backoff(SOON, idle), Backoff(SOON, ANSWER)
        self._awake = time.monotonic()

    def __call__(self, wanted: float) -> None:
        pauses, other = (self._work, self._answer) if wanted > ANSWER else (self._answer, self._work)
        other.restart()
        pause, asked = min(wanted, pauses.next()), time.monotonic() - self._awake
        time.sleep(max(pause, min(LONGEST, BUSY * asked)))
        self._awake = time.monotonic()


def start_watched(command: list[str]) -> Any:
    """Start the executor, and end this process when the executor ends."""
    process = subprocess.Popen(command)

    def watch() -> None:
        process.wait()
        print("the executor has ended", flush=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return process


class Client(httpx.Client):  # type: ignore[misc]
    """Keeps idle connections longer than httpx's 5 s, and ends this process if the server refuses its signature.

    A new connection costs the SuperLink more than most answers.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"limits": httpx.Limits(keepalive_expiry=KEPT), **given})

    def send(self, request: httpx.Request, **given: Any) -> httpx.Response:
        answer = super().send(request, **given)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            print("the server refuses this node's signature", flush=True)
            os._exit(1)
        return answer


def say_often_alive() -> None:
    """Send a heartbeat every `ALIVE` seconds; Flower sends one every 30."""
    for name in ("flwr.supernode.fleet_http_connection", "flwr.supercore.heartbeat"):
        setattr(sys.modules[name], "HEARTBEAT_DEFAULT_INTERVAL", ALIVE)  # noqa: B010


def main() -> None:
    setattr(httpx, "Client", Client)  # noqa: B010  (that of Flower's requests to the server)
    most = int(os.environ["SPARSONA_MEMORY"])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    start = command("flower-supernode")  # imports the modules that are changed below
    loop = sys.modules["flwr.supernode.start_client_internal"]
    setattr(loop, "time", SimpleNamespace(sleep=Sleep(float(os.environ["SPARSONA_IDLE"]))))  # noqa: B010
    setattr(loop, "subprocess", SimpleNamespace(Popen=start_watched))  # noqa: B010
    say_often_alive()
    service = sys.modules["flwr.supernode.main"]
    token, create_app = Path(os.environ["SPARSONA_TOKEN"]).read_bytes(), service.create_app

    def create_guarded(**given: Any) -> Any:
        return create_app(**{**given, "superexec_auth_secret": token})

    setattr(service, "create_app", create_guarded)  # noqa: B010
    start()


if __name__ == "__main__":
    main()
