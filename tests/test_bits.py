"""Bitmaps against numpy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.bits import bitmap, places


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.booleans(), max_size=200))
def test_a_bitmap_is_that_of_numpy_and_comes_back(flags: list[bool]) -> None:
    mask = np.array(flags, np.bool_)
    bits = bitmap(len(mask), np.flatnonzero(mask))
    assert np.array_equal(bits, np.packbits(mask, bitorder="little"))
    assert np.array_equal(places(bits), np.flatnonzero(mask))
