"""The SuperLink's door: no endless request, no half request, no forged address."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason='the network needs Flower: pip install "sparsona[flower]"')

import socket

import uvicorn
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.runtime_pb2 import PushAppMessagesRequest

sys.path.insert(0, str(Path(__file__).parents[4] / "src" / "sparsona" / "engines" / "network" / "flower" / "started"))

from sparsona.engines.network.flower.processes import free_port
from sparsona.engines.network.flower.started import superlink

pytestmark = pytest.mark.network


async def reads_all(scope: Any, receive: Any, send: Any) -> None:
    """An app like Flower's: it reads the whole request before it looks at it."""
    if scope["type"] == "lifespan":
        return
    got, more = 0, True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":
            return
        got, more = got + len(part.get("body", b"")), part.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(got).encode()})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with the guard of the SuperLink, on loopback; it waits for a second where a real one waits for 30."""
    monkeypatch.setattr(superlink, "HALF", 1.0)
    found = free_port()
    config = uvicorn.Config(
        superlink.guarded(reads_all), port=found, log_level="critical", lifespan="off", proxy_headers=False,
        http=superlink.HeadTimeout,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < until
        time.sleep(0.05)
    yield found
    server.should_exit = True
    thread.join(60)


def asked(port: int, request: bytes) -> bytes:
    """What the server answers, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(request)
        found = b""
        while part := link.recv(4096):
            found += part
            if b"\r\n\r\n" in found:
                break
        return found


def test_an_honest_request_is_answered(port: int) -> None:
    answer = asked(port, b"POST /v1/fleet/x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello")
    assert answer.startswith(b"HTTP/1.1 200")


def test_three_gigabytes_are_not_read(port: int) -> None:
    answer = asked(port, b"POST /v1/fleet/x HTTP/1.1\r\nhost: a\r\ncontent-length: 3000000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_say_how_long_it_is_ends_at_the_limit(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink, "MOST_BODY", 1000)
    chunks = b"".join(b"190\r\n" + b"x" * 400 + b"\r\n" for _ in range(5)) + b"0\r\n\r\n"
    answer = asked(port, b"POST /v1/fleet/x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
    assert b" 200" not in answer[:20]


@pytest.mark.parametrize(
    "half", [b"", b"POST /v1/fl", b"POST /v1/fleet/x HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhel"]
)
def test_a_half_request_is_not_waited_for(half: bytes, port: int) -> None:
    began = time.monotonic()
    asked(port, half)
    assert time.monotonic() - began < 50


def test_a_forged_address_opens_nothing() -> None:
    said: list[Any] = []

    async def send(part: Any) -> None:
        said.append(part)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "path": "/v1/control/stop",
        "client": ("203.0.113.9", 4),
        "server": ("10.0.0.1", 9092),
        "headers": [(b"x-forwarded-for", b"127.0.0.1")],
    }

    async def ask() -> None:
        await superlink.guarded(reads_all)(scope, receive, send)

    asyncio.run(ask())
    assert said[0]["status"] == 403


def test_what_a_proxy_says_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **settings: given.update(settings))
    monkeypatch.setattr(superlink, "command", lambda name: lambda: uvicorn.run(reads_all, port=1))
    superlink.main()
    assert given["proxy_headers"] is False


def test_a_locked_database_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy import create_engine, event, text
    from sqlalchemy.pool import Pool

    listen, heard = event.listen, list[tuple[Any, str, Any]]()

    def noted(target: Any, name: str, call: Any) -> None:
        heard.append((target, name, call))
        listen(target, name, call)

    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.begin() as first:
        first.execute(text("CREATE TABLE t (a)"))
    monkeypatch.setattr(event, "listen", noted)
    superlink.wait_for_locks()
    try:
        with engine.connect() as one:
            assert one.scalar(text("PRAGMA busy_timeout")) == 1000 * superlink.LOCKED
    finally:
        for target, name, call in heard:
            event.remove(target, name, call)
    assert [(target, name) for target, name, _ in heard] == [(Pool, "checkout")]


class Flower:
    """An app that notes the requests that reach it, and has a message for the nodes in `waiting`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waiting: set[int] = set()
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"].rpartition("/")[2])
        body = (await receive())["body"]
        answer = b""
        if self.status == 200 and scope["path"].endswith("pull-messages"):
            node = PullMessagesRequest.FromString(body).node.node_id
            answer = b"message" if node in self.waiting else b""
            self.waiting.discard(node)
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": answer})


def ask(idle: Any, path: str, body: bytes) -> tuple[int, bytes]:
    """The status and body of the answer to a request."""
    parts: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(part: Any) -> None:
        parts.append(part)

    asyncio.run(idle({"type": "http", "path": path}, receive, send))
    return parts[0]["status"], parts[1]["body"]


def poll(idle: Any, node: int) -> bytes:
    request = PullMessagesRequest()
    request.node.node_id = node
    return ask(idle, "/v1/fleet/pull-messages", request.SerializeToString())[1]


def push(idle: Any, node: int) -> None:
    request = PushAppMessagesRequest()
    request.messages_list.add().metadata.dst_node_id = node
    ask(idle, "/v1/runtime/push-messages", request.SerializeToString())


def test_a_poll_reaches_flower_only_if_a_message_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    flower = Flower()
    idle = superlink.Idle(flower)
    assert [poll(idle, 1), poll(idle, 1), poll(idle, 2)] == [b"", b"", b""]
    assert flower.asked == ["pull-messages"] * 2
    flower.waiting = {1}
    push(idle, 1)
    assert [poll(idle, 1), poll(idle, 1), poll(idle, 1), poll(idle, 2)] == [b"message", b"", b"", b""]
    assert flower.asked[2:] == ["push-messages", "pull-messages", "pull-messages"]
    monkeypatch.setattr(superlink, "LOOKED_UP", 0.0)
    poll(idle, 2)
    assert len(flower.asked) == 6


def test_a_poll_that_flower_refuses_is_looked_up_again() -> None:
    flower = Flower()
    flower.status = 401
    idle = superlink.Idle(flower)
    poll(idle, 1)
    poll(idle, 1)
    assert flower.asked == ["pull-messages"] * 2
    assert ask(idle, "/v1/fleet/pull-messages", b"\xff")[0] == 401  # no protobuf: Flower has an answer to that


def test_heartbeats_in_short_order_are_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    flower = Flower()
    idle = superlink.Idle(flower)
    request = SendNodeHeartbeatRequest(heartbeat_interval=12)
    request.node.node_id = 1

    def beat() -> Any:
        found = ask(idle, "/v1/fleet/send-node-heartbeat", request.SerializeToString())
        return found[0], SendNodeHeartbeatResponse.FromString(found[1]).success

    flower.status = 503
    assert beat()[0] == 503
    flower.status = 200
    beat()
    assert beat() == (200, True)
    assert len(flower.asked) == 2
    monkeypatch.setattr(superlink, "NOTED", 0.0)
    beat()
    assert len(flower.asked) == 3
