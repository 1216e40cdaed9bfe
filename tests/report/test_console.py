"""Progress where there is no terminal."""

from __future__ import annotations

import io
import re

import pytest

import sparsona
from sparsona.report.console import RoundProgress
from sparsona.terminal import PlainConsole


@pytest.mark.parametrize("quiet", [False, True])
def test_without_a_terminal_each_round_is_one_line_with_score_bytes_and_time_left(quiet: bool) -> None:
    shown = io.StringIO()
    done = sparsona.run("fedavg", clients=2, rounds=2, partition="iid", engine="inprocess")
    with RoundProgress(PlainConsole(file=shown, width=80), "fedavg", 2, "accuracy", quiet) as progress:
        for report in done.history:
            progress.advance(report)
    lines = shown.getvalue().splitlines()
    expected = [rf"fedavg: round {n}/2, accuracy [\d.]+ %, [\d.]+ \w+, \d+ s left" for n in (1, 2)]
    assert len(lines) == (0 if quiet else 2)
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(expected, lines, strict=False))
