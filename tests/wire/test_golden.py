"""Exact bytes, both ways. A test that fails here means that old frames cannot be read: that needs a new version."""

from __future__ import annotations

import pytest
from wire_cases import GOLDEN, Case, cases, same

from sparsona.wire import against, floats, levels, positions
from sparsona.wire.buffers import Reader

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_are_pinned_both_ways(case: Case) -> None:
    path = GOLDEN / f"{case.name}.hex"
    assert path.exists(), f"{path.name} is missing: write it with `python tests/golden/write.py`, on purpose"
    pinned = bytes.fromhex(path.read_text())
    assert case.frame.data == pinned
    assert same(case.read(pinned), case.message)


def test_no_golden_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.hex")} == {case.name for case in CASES}


@pytest.mark.parametrize(
    ("name", "numbers", "way"),
    [
        ("floats-raw", 1, floats.RAW),
        ("floats-noise", 1, floats.RAW),
        ("floats-constant", 1, floats.PALETTE),
        ("floats-palette", 1, floats.PALETTE),
        ("floats-holes", 1, floats.HOLES),
        ("floats-weights", 1, floats.FIELDS),
        ("floats-update", 1, floats.FIELDS),
        ("positions-bitmap", 2, positions.BITMAP),
        ("positions-list", 2, positions.LIST),
        ("positions-absent", 2, positions.LIST | 16),
        ("positions-gaps", 2, positions.GAPS),
        ("positions-tensors", 2, positions.TENSOR_GAPS),
        ("positions-grid", 2, positions.GRID),
        ("positions-grid-layout", 2, positions.GRID | 32),
        ("levels-runs", 4, levels.RUNS),
        ("levels-mixed", 3, levels.RUNS),
        ("levels-floats", 3, levels.FLOATS),
        ("against-same", 0, against.SAME),
        ("against-floats", 0, against.DIFFERENT),
        ("against-positions", 0, against.DIFFERENT),
        ("against-float16", 0, against.DIFFERENT),
    ],
)
def test_every_way_of_coding_is_pinned(name: str, numbers: int, way: int) -> None:
    """After the header and so many numbers stands the way: no case slips into another one unseen."""
    (case,) = [case for case in CASES if case.name == name]
    reader = Reader(case.frame.data[18 if case.reference else 10 :], 0)
    for _ in range(numbers):
        reader.varint("a number")
    assert reader.byte("the way") == way
