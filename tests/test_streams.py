"""Streams in compiled code against numpy's generators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.chance import Chance
from sparsona.streams import integers, stream, uniform


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 2**70), st.integers(0, 2**33), st.text(max_size=3), st.integers(0, 9))
def test_a_stream_is_that_of_numpy(seed: int, round: int, client: str, layer: int) -> None:
    chance = Chance(seed)
    ours = stream(chance.words("draw", round=round, client=client), layer)
    theirs = chance.rng("draw", round=round, client=client, layer=layer)
    for count in (3, 0, 6, 1):
        assert np.array_equal(uniform(ours, count), theirs.random(count, np.float32))
        for below in (1, 2, 7, 3_000_000_000):
            assert np.array_equal(integers(ours, below, count), theirs.integers(0, below, count))


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(OverflowError):
        Chance(-1).rng("draw")
