"""What an evil owner may answer to each message of the protocol: a table of lies, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flower_helpers import SPOILED, spoiled

from sparsona.data.schema.exchange import LIMIT
from sparsona.data.schema.limits import pack_doubles
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.heads import MOST_ROWS, told_ledger
from sparsona.message import Message
from sparsona.wire import decode, encode

ESCAPES = "\x1b[2J\x1b]0;owned\x07" * 3

Change = Callable[[Head, Head, bytes], tuple[Head, bytes]]
"""Makes a lie of the message that was asked, and of the honest head and body of the answer."""


@dataclass(frozen=True)
class Lie:
    """What an evil owner does to every answer to messages of one kind.

    `to` is the kind of the message, for turns the kind of the job. `change` None: it does not answer.
    """

    to: str
    change: Change | None


def kind_of(asked: Head) -> str:
    """The kind of a message as `Lie.to` names it."""
    return str(asked["job"]) if asked["kind"] == "turn" else str(asked["kind"])


def head(**keys: Any) -> Change:
    """The honest answer with some keys of its head changed."""
    return lambda asked, told, body: ({**told, **keys}, body)


def instead(**keys: Any) -> Change:
    """Another head, without a body."""
    return lambda asked, told, body: (keys, b"")


def with_body(make: Callable[[bytes], bytes]) -> Change:
    """Another body, and an account that adds up where the head has one."""

    def change(asked: Head, told: Head, body: bytes) -> tuple[Head, bytes]:
        made = make(body)
        return {**told, **({"ledger": [0, 0, len(made), 0.0, 0, 0]} if "ledger" in told else {})}, made

    return change


def _spoiled(kind: str) -> Change:
    return lambda asked, told, body: spoiled(kind, told, body, asked["round"])


def _everywhere(asked: str) -> dict[str, Lie]:
    """Lies that fit every message."""
    return {
        f"{asked}: silence": Lie(asked, None),
        f"{asked}: another kind": Lie(asked, head(kind="surprise")),
        f"{asked}: more keys": Lie(asked, head(and_more=[[[]]])),
        f"{asked}: an error of escapes": Lie(asked, instead(kind="error", why=ESCAPES + "x" * 10**5)),
        f"{asked}: an error that is none": Lie(asked, instead(kind="error", why=[{}])),
        f"{asked}: noise as body": Lie(asked, with_body(lambda body: b"\xff" * 100)),
        f"{asked}: 16 MB as body": Lie(asked, with_body(lambda body: body + bytes(2**24))),
    }


def _delays(asked: str) -> dict[str, Lie]:
    """Answers after which a message is sent again and again, until nobody waits for it any more."""
    return {
        f"{asked}: behind": Lie(asked, instead(kind="behind", number=2**53)),
        f"{asked}: behind without a number": Lie(asked, instead(kind="behind", number=-(2.0**70))),
        f"{asked}: it waits for ever": Lie(asked, instead(kind="waits")),
    }


def _scores(asked: str) -> dict[str, Lie]:
    return {
        f"{asked}: a score of 999": Lie(asked, head(scores={"pre": [999, None]})),
        f"{asked}: a score of 1e308": Lie(asked, head(scores={"post": [1e308, 0.5]})),
        f"{asked}: nested scores": Lie(asked, head(scores=[[[]]])),
        f"{asked}: a huge integer": Lie(asked, head(seconds=10**400)),
        f"{asked}: a bound of 1e308": Lie(asked, head(ledger=[0, 0, 0, 1e308, 0, 0])),
        f"{asked}: endless work": Lie(asked, head(flops=2**70)),
    }


LIES: Mapping[str, Lie] = {
    **_everywhere("hello"),
    **_delays("hello"),
    "hello: 2^62 rows": Lie("hello", head(sizes=[2**62, 5, 5])),
    "hello: rows without end": Lie("hello", head(sizes=[1e400, 5, 5])),
    "hello: 10^9 rows": Lie("hello", head(sizes=[MOST_ROWS, 5, 5])),
    "hello: a nested schema": Lie("hello", head(published={"classes": [[["a"]]]})),
    "hello: another name": Lie("hello", head(name=f"c0\nc3 is here{ESCAPES}")),
    "hello: another version": Lie("hello", head(sparsona=f"9{ESCAPES}")),
    "hello: another model": Lie("hello", head(model="mlp:10000000")),
    **_everywhere("agreed"),
    "agreed: another model": Lie("agreed", head(fingerprint="ab" * 32)),
    "agreed: no hash": Lie("agreed", head(fingerprint=[7])),
    **_everywhere("fit"),
    **_delays("fit"),
    **_scores("fit"),
    **{f"fit: {kind}": Lie("fit", _spoiled(kind)) for kind in SPOILED},
    "fit: never has the reference": Lie("fit", instead(kind="whole")),
    **_everywhere("personal"),
    **_scores("personal"),
    **_everywhere("finish"),
    "finish: no memory": Lie("finish", head(memory=None)),
    "finish: a model of noise": Lie("finish", with_body(lambda body: bytes(1000))),
    "ping: a number without end": Lie("ping", head(number=10**400)),
}


def gross(change: Callable[[dict[str, Any]], None]) -> Change:
    """Other statistics of a table's columns in a greeting."""

    def lie(asked: Head, told: Head, body: bytes) -> tuple[Head, bytes]:
        parts = dict(decode(body, LIMIT).parts)
        change(parts)
        frame = encode(Message(**parts))
        return {**told, "ledger": list(told_ledger(frame.ledger))}, frame.data

    return lie


def _set(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda parts: parts.update({name: pack_doubles(np.full(len(parts[name]), value))})


OF_TABLES: Mapping[str, Lie] = {
    "hello: squares of 1e30": Lie("hello", gross(_set("inputs.squares", 1e30))),
    "hello: a mean of 1e9": Lie("hello", gross(_set("inputs.mean", 1e9))),
    "hello: no deviation at all": Lie("hello", gross(_set("inputs.squares", -1.0))),
    "hello: other columns": Lie("hello", gross(lambda parts: parts.update({"inputs.known": np.arange(9)}))),
    "hello: no statistics": Lie("hello", gross(lambda parts: parts.clear())),
}
"""Lies about the columns of a table."""
