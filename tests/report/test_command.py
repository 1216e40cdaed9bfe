from __future__ import annotations

import shlex

import pytest

from sparsona.cli.options import RunOptions
from sparsona.experiment import assign, build, read, to_toml
from sparsona.report.command import run_command


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedavg", "rounds": 8},
        {"method": "fedspa", "options": {"density": 0.2}, "training": {"lr": 0.01, "drops": (0.5, 0.75)}, "seed": 3},
        {
            "method": "plga",
            "schedule": {"devices": "phone-4g", "dropout": 0.1},
            "partition": "sorted:1.0",
            "clients": 7,
        },
    ],
)
def test_the_command_describes_the_same_experiment(settings: dict[str, object], tmp_path: object) -> None:
    whole, _ = build(settings)
    file = tmp_path / "experiment.toml"  # type: ignore[operator]
    file.write_text(to_toml(whole))
    words = shlex.split(run_command(read(file)))
    assert words[:2] == ["sparsona", "run"]
    given: dict[str, object] = {"method": words[2]}
    sets = [value for flag, value in zip(words[3::2], words[4::2], strict=True) if flag == "--set"]
    for flag, value in zip(words[3::2], words[4::2], strict=True):
        if flag != "--set":
            name = flag.removeprefix("--").replace("-", "_")
            assert name in RunOptions.__dataclass_fields__
            given[name] = int(value) if value.isdigit() else value
    again, _ = build(assign(given, sets))
    assert again.same_work(whole) is None
    assert again.rounds == whole.rounds
