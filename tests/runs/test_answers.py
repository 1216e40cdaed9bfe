from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparsona.errors import RunError
from sparsona.metrics import Answers
from sparsona.runs.answers import FILE, read_answers, together, write_answers


def made(rows: int, seed: int) -> Answers:
    rng = np.random.default_rng(seed)
    yes = rng.random(rows)
    return Answers(
        "classification", (yes > 0.5).astype(np.int64), np.stack([1 - yes, yes], 1), rng.integers(0, 2, rows)
    )


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    given = {"west": made(7, 0), "east": made(3, 1)}
    write_answers(tmp_path, given)
    found = read_answers(tmp_path)
    assert sorted(found) == ["east", "west"]
    for client, one in given.items():
        assert (found[client].targets == one.targets).all()
        assert (found[client].predictions == one.predictions).all()
        np.testing.assert_allclose(found[client].probabilities, one.probabilities, atol=1e-7)
    assert len(together(found)) == 10


def test_a_run_without_answers_has_none(tmp_path: Path) -> None:
    assert read_answers(tmp_path) == {}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_answers(tmp_path, {"east": made(3, 1)})
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:100])
    with pytest.raises(RunError, match="damaged"):
        read_answers(tmp_path)
