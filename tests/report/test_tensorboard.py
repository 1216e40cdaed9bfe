from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sparsona
from sparsona.errors import InputError
from sparsona.report.tensorboard import scalar_values, scalars, told_to
from sparsona.runs.records import RoundReport


def test_scalars_are_those_of_the_rounds_also_after_an_interruption(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install sparsona[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen: list[RoundReport] = []
    for rounds in (range(1, 4), range(3, 5)):  # the first session was killed before round 3 was checkpointed
        with scalars(tmp_path) as write:
            tell = told_to([seen.append, write])
            result = sparsona.run("local", clients=2, rounds=4, partition="iid", engine="inprocess")
            for report in result.history:
                if report.round in rounds:
                    tell(report)
    assert [report.round for report in seen] == [1, 2, 3, 3, 4]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = events.Scalars("pre/mean")
    assert [event.step for event in found] == [1, 2, 3, 4]
    assert found[-1].value == pytest.approx(scalar_values(seen[-1])["pre/mean"])
    assert {"bytes/up", "bytes/down", "flops", "pre/validation", "post/worst"} <= set(events.Tags()["scalars"])


def test_without_tensorboard_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'sparsona\[tensorboard\]'"), scalars(tmp_path):
        pass
