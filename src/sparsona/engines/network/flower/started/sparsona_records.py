"""The content of a Flower message and of an owner's socket: a head (a small JSON object) and a body (a frame).

This folder holds the scripts that Flower starts. They are run by their path, so that no message imports sparsona, and
with it torch, on an owner's machine. This file may import only the standard library.
"""

from __future__ import annotations

import json
import socket
from typing import Any

STYPE = "sparsona.frame"
HEAD, BODY = "head", "body"
NUMBER = "number"  # the key in a head that holds the message's number on its way to a node
SMALL = 2**20  # largest body in bytes that travels in the record of the head; a longer one is an array
MOST_HEAD = 2**20  # largest head in bytes; a longer one is refused
LENGTH = 8
CHUNK = 2**20

Head = dict[str, Any]


class BadParcel(Exception):
    """Bytes that are not a valid or not an acceptable head and body."""


def to_record(head: Head, body: bytes) -> Any:
    """Return the content of a Flower message.

    Flower stores and moves each record and array of a message separately, with four requests each. So a small body
    travels in the record of the head. A larger one is an array of our own kind, which Flower moves in chunks.
    """
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    text = json.dumps(head, separators=(",", ":"), allow_nan=False)
    if len(body) <= SMALL:
        return RecordDict({HEAD: ConfigRecord({HEAD: text, BODY: body})})
    array = Array(dtype="uint8", shape=(len(body),), stype=STYPE, data=body)
    return RecordDict({HEAD: ConfigRecord({HEAD: text}), BODY: ArrayRecord({BODY: array})})


def from_record(content: Any) -> tuple[Head, bytes]:
    """Return the head and body in the content of a Flower message."""
    try:
        text, body = content[HEAD][HEAD], content[HEAD].get(BODY)
        if body is None:
            array = content[BODY][BODY]
            body = array.data if array.stype == STYPE else None
    except (KeyError, TypeError, AttributeError) as error:
        raise BadParcel(f"the message lacks a part ({error!r})") from None
    if not isinstance(body, bytes):
        raise BadParcel(f"the body is neither bytes nor an array of kind {STYPE!r}")
    return from_text(text), body


def write(stream: socket.socket, head: Head, body: bytes) -> None:
    """Send a head and a body over a socket."""
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    stream.sendall(len(text).to_bytes(LENGTH, "little") + text + len(body).to_bytes(LENGTH, "little"))
    if body:
        stream.sendall(body)


class Incoming:
    """A head that was read from a socket, and a body that is still to be read."""

    def __init__(self, stream: socket.socket) -> None:
        size = _length(stream)
        if size > MOST_HEAD:
            raise BadParcel(f"a head of {size} bytes, at most {MOST_HEAD} can be needed")
        self.head = from_text(_take(stream, size).decode("utf-8", "replace"))
        self._stream, self._left = stream, _length(stream)

    def body(self, most: int) -> bytes:
        """Return the body; refuse one of more than `most` bytes without reading it."""
        if self._left > most:
            raise BadParcel(f"a body of {self._left} bytes, at most {most} can be needed here")
        self._left, size = 0, self._left
        return _take(self._stream, size)

    def drop(self) -> None:
        """Read and drop the rest of the body: the other side reads no reply before it has sent everything."""
        while self._left:
            self._left -= len(_take(self._stream, min(self._left, CHUNK)))


def from_text(text: Any) -> Head:
    """Return the head in a JSON text."""
    if not isinstance(text, str) or len(text) > MOST_HEAD:
        raise BadParcel("the head is no text, or too long")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise BadParcel("the head is not JSON") from None
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise BadParcel("the head does not say of what kind it is")
    return head


def _length(stream: socket.socket) -> int:
    return int.from_bytes(_take(stream, LENGTH), "little")


def _take(stream: socket.socket, size: int) -> bytes:
    held = bytearray(size)
    view, at = memoryview(held), 0
    while at < size:
        got = stream.recv_into(view[at:])
        if not got:
            raise ConnectionError("the other side has hung up")
        at += got
    return bytes(held)
