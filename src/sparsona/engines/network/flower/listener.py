"""The socket through which a node's stub passes messages to the owner's process."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

from sparsona.engines.network.carrier import OrderGuard, checked_number
from sparsona.engines.network.flower.started.sparsona_records import NUMBER, BadParcel, Incoming, write
from sparsona.errors import InputError, StoreError
from sparsona.training.determinism import make_deterministic

log = logging.getLogger("sparsona.node")

LOOK = 0.5
"""Seconds between two checks whether the node can continue."""


def serve(guard: OrderGuard, path: Path, check: Callable[[], None] = lambda: None) -> None:
    """Answer messages one by one on a socket that only the owner can open, until `check` raises an error."""
    make_deterministic()
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:
            raise InputError(f"cannot listen at {path} ({error}): choose a --state with a shorter path") from None
        path.chmod(0o600)
        listener.listen()
        listener.settimeout(LOOK)
        while True:
            check()
            try:
                stream, _ = listener.accept()
            except TimeoutError:
                continue
            with stream:
                _serve_one(guard, stream)


def _serve_one(guard: OrderGuard, stream: socket.socket) -> None:
    try:
        asked = Incoming(stream)
        number = checked_number(asked.head.pop(NUMBER, None))
        reply = guard.answer(number, asked.head, asked.body)
        asked.drop()
        guard.done(number)
    except BadParcel as error:
        log.error("a message is refused: %s", error)
        reply = {"kind": "error", "why": str(error)}, b""
    except StoreError as error:
        log.error("%s; the message is asked for again", error)
        return
    except OSError:
        log.warning("a message broke off")
        return
    try:
        write(stream, *reply)
    except OSError:
        log.warning("nobody waits for the reply any more; it is kept for when the server asks again")
