from __future__ import annotations

from pathlib import Path

import pytest

import sparsona


def test_scalars_are_those_of_the_rounds_also_of_a_resumed_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install sparsona[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rounds in (3, 4):
        result = sparsona.run(
            "local", clients=2, rounds=rounds, partition="iid", engine="inprocess", out=tmp_path / "a",
            resume=rounds > 3, report_to="tensorboard",
        )  # fmt: skip
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard")).Reload()
    found = events.Scalars("pre/mean")
    assert [event.step for event in found] == [1, 2, 3, 4]
    assert found[-1].value == pytest.approx(result.summary["accuracy"]["pre"]["mean"])
    assert {"bytes/up", "flops", "pre/validation", "post/worst", "clients/c0/pre"} <= set(events.Tags()["scalars"])
