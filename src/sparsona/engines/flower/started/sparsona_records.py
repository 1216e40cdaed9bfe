"""What travels as a Flower message and over an owner's socket: a head (a small JSON object) and a body (a frame).

This folder holds the scripts that Flower starts. They are run by their path, so that nothing of sparsona, and so no
torch, is imported on an owner's machine for every message. This file may import nothing but the standard library.
"""

from __future__ import annotations

import json
import socket
from typing import Any

STYPE = "sparsona.frame"
HEAD, BODY, FRAME = "head", "body", "frame"
MOST_HEAD = 2**20
"""Bytes. A longer head is refused."""
LENGTH = 8

Head = dict[str, Any]


class BadParcel(Exception):
    """Bytes that are no head and body, or too many of them."""


def to_record(head: Head, body: bytes) -> Any:
    """The content of a Flower message. The body is an array of our own kind: Flower moves it as it is."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    array = Array(dtype="uint8", shape=(len(body),), stype=STYPE, data=body)
    text = json.dumps(head, separators=(",", ":"), allow_nan=False)
    return RecordDict({HEAD: ConfigRecord({HEAD: text}), BODY: ArrayRecord({FRAME: array})})


def from_record(content: Any) -> tuple[Head, bytes]:
    """The head and body in the content of a Flower message."""
    try:
        text, array = content[HEAD][HEAD], content[BODY][FRAME]
        body = array.data
        if array.stype != STYPE or not isinstance(body, bytes):
            raise BadParcel(f"the body is of kind {str(array.stype)[:40]!r}, expected {STYPE!r}")
    except (KeyError, TypeError, AttributeError) as error:
        raise BadParcel(f"the message lacks a part ({error!r})") from None
    return _head(text), body


def write(stream: socket.socket, head: Head, body: bytes) -> None:
    """Send a head and a body over a socket."""
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    stream.sendall(len(text).to_bytes(LENGTH, "little") + text + len(body).to_bytes(LENGTH, "little"))
    if body:
        stream.sendall(body)


def read(stream: socket.socket, most: int) -> tuple[Head, bytes]:
    """Receive a head and a body of at most `most` bytes; nothing longer is read into memory."""
    text = _take(stream, _length(stream, MOST_HEAD))
    return _head(text.decode("utf-8", "replace")), _take(stream, _length(stream, most))


def _head(text: Any) -> Head:
    if not isinstance(text, str) or len(text) > MOST_HEAD:
        raise BadParcel("the head is no text, or too long")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise BadParcel("the head is not JSON") from None
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise BadParcel("the head does not say of what kind it is")
    return head


def _length(stream: socket.socket, most: int) -> int:
    size = int.from_bytes(_take(stream, LENGTH), "little")
    if size > most:
        raise BadParcel(f"{size} bytes, at most {most} can be needed here")
    return size


def _take(stream: socket.socket, size: int) -> bytes:
    held = bytearray(size)
    view, at = memoryview(held), 0
    while at < size:
        got = stream.recv_into(view[at:])
        if not got:
            raise ConnectionError("the other side has hung up")
        at += got
    return bytes(held)
