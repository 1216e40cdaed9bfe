"""Sealed parcels: what was changed, moved or repeated does not open."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailbox_helpers import seals

from sparsona.engines.network.flower.started.sparsona_records import BadParcel
from sparsona.engines.network.keys import make_node_key
from sparsona.engines.network.mailbox.seal import Envelope, Seal
from sparsona.errors import InputError

SENT = Envelope(False, "ward 7", 12, b"s" * 16)
HEAD, BODY = {"kind": "turn", "round": 3}, b"weights of the ward" * 9


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seal, Seal]:
    return seals(tmp_path_factory.mktemp("keys"), ["ward 7"])["ward 7"]


def test_the_receiver_opens_what_the_sender_closed_and_nobody_reads_it(pair: tuple[Seal, Seal]) -> None:
    closed = pair[0].close(SENT, HEAD, BODY)
    assert pair[1].open(SENT, closed) == (HEAD, BODY)
    assert b"weights" not in closed
    assert b"turn" not in closed
    assert pair[0].close(SENT, HEAD, BODY) != closed


@pytest.mark.parametrize(
    "other", [{"to_server": True}, {"client": "ward 8"}, {"number": 13}, {"session": b"t" * 16}], ids=str
)
def test_a_parcel_opens_only_where_it_belongs(other: dict[str, object], pair: tuple[Seal, Seal]) -> None:
    closed = pair[0].close(SENT, HEAD, BODY)
    with pytest.raises(BadParcel):
        pair[1].open(dataclasses.replace(SENT, **other), closed)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 10**4), bit=st.integers(0, 7), cut=st.booleans())
def test_a_changed_or_cut_parcel_does_not_open(pair: tuple[Seal, Seal], at: int, bit: int, cut: bool) -> None:
    closed = bytearray(pair[0].close(SENT, HEAD, BODY))
    at %= len(closed)
    if cut:
        del closed[at:]
    else:
        closed[at] ^= 1 << bit
    with pytest.raises(BadParcel):
        pair[1].open(SENT, bytes(closed))


def test_another_key_neither_opens_nor_forges(pair: tuple[Seal, Seal], tmp_path: Path) -> None:
    strangers = seals(tmp_path, ["ward 7"])["ward 7"]
    with pytest.raises(BadParcel):
        strangers[1].open(SENT, pair[0].close(SENT, HEAD, BODY))
    with pytest.raises(BadParcel):
        pair[1].open(SENT, strangers[0].close(SENT, HEAD, BODY))


def test_a_key_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    key = make_node_key(tmp_path, "a")
    with pytest.raises(InputError, match="is not a public key"):
        Seal(key, key)
    with pytest.raises(InputError, match="is a public key"):
        Seal(tmp_path / "a.pub", tmp_path / "a.pub")
