"""Every kind of part is one row of one table, and arrives as it was sent."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_cases import same
from wire_strategies import PARTS, anything

from sparsona.message import NUMBER_TYPES, Message, Part, Structured, numbers_of, paper_bytes
from sparsona.wire import Limit, Reference, decode, encode
from sparsona.wire.kinds import AGAINST, KINDS, number_of

ROOMY = Limit(elements=100_000)


def arrives(sent: Message, held: Reference | None) -> bool:
    return same(decode(encode(sent, reference=held).data, ROOMY, references=lambda _: held), sent)


def test_every_kind_has_one_row() -> None:
    rows = Counter(kind.holds for kind in KINDS.values())
    assert set(rows) == {int, float, "single", *map(np.dtype, NUMBER_TYPES), *get_args(Structured)}
    assert set(rows.values()) == {1}
    assert max(KINDS) < AGAINST, "a kind and the same one against a reference are told apart"
    assert set(PARTS) == set(rows), "the tests draw parts of every kind"


@pytest.mark.parametrize("number", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_part_of_every_kind_arrives(number: int, data: st.DataObject) -> None:
    kind = KINDS[number]
    part, base = (data.draw(PARTS[kind.holds]) for _ in range(2))
    assert number_of(part) == number
    sent = Message(part=part)
    assert arrives(sent, None)
    assert arrives(sent, Reference.of({"part": base}))
    assert arrives(sent, Reference.of({"part": part}))


@given(part=anything())
def test_a_part_knows_its_numbers_and_what_papers_count(part: Part) -> None:
    """Papers count values, not positions: never more than what a part holds, and nothing where it holds no values."""
    counted, values = paper_bytes(Message(part=part)), sum(array.nbytes for array in numbers_of(part))
    if isinstance(part, int | float):
        assert counted == 0
    else:
        assert (counted > 0) == (values > 0)
