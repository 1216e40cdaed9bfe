from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from sparsona.cli.options import RunOptions, keys
from sparsona.experiment import assign, build, read, to_toml
from sparsona.report.command import SHORT, compare_command, run_command
from sparsona.studies.contest import split_contender


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
        {
            "method": "fedavg",
            "data": "folder:/wards",
            "schedule": {"sample": 0.5},
            "evaluation": {"every": 2},
            "columns": {"target": ["num"], "categorical": ["sex", "chest pain"], "drop": ["a,b"], "task": "regression"},
            "split": {"by": "group:ward"},
        },
    ],
)
def test_the_command_describes_the_same_experiment(settings: dict[str, object], tmp_path: object) -> None:
    whole, _ = build(settings)
    file = tmp_path / "experiment.toml"  # type: ignore[operator]
    file.write_text(to_toml(whole))
    words = shlex.split(run_command(read(file)))
    assert words[:2] == ["sparsona", "run"]
    given: dict[str, Any] = {}
    sets = [value for flag, value in zip(words[3::2], words[4::2], strict=True) if flag == "--set"]
    for flag, value in zip(words[3::2], words[4::2], strict=True):
        if flag != "--set":
            name = flag.removeprefix("--").replace("-", "_")
            assert name in RunOptions.__dataclass_fields__
            given[name] = int(value) if value.isdigit() else value
    if "sample" in given:
        given["sample"] = float(given["sample"])
    again, _ = build(assign(RunOptions(**given).settings({"method": words[2]}), sets))
    assert again.same_work(whole) is None
    assert again.rounds == whole.rounds


def test_an_owner_reads_the_options_that_he_has_typed() -> None:
    columns = {"target": ["num"], "drop": ["id", "name"]}
    told = run_command({"method": "fedavg", "data": "folder:ok", "columns": columns, "split": {"by": "time:day"}}, "r")
    assert told == "sparsona run fedavg --data folder:ok --target num --drop id,name --split time:day --out r"


@pytest.mark.parametrize(
    "contender",
    [
        "fedthin:pool=trees+shared",
        "fedspa:density=0.2,mask_1d=false",
        "fedprox:mu=0.5,server.lr=0.5,personal.average=0.5,weights=own",
    ],
)
def test_baselines_of_a_comparison_keep_their_own_options(contender: str) -> None:
    name, own = split_contender(contender)
    common = {"rounds": 8, "data": "csv:a.csv"}
    whole, _ = build(assign({"method": name, **common}, own))
    words = shlex.split(compare_command(json.loads(whole.model_dump_json(exclude_none=True))))
    assert words[:2] == ["sparsona", "compare"]
    assert {flag for flag in words[3:] if flag.startswith("--")} == {"--data", "--rounds", "--set"}
    assert words[-1] == "training.lr=0.1"
    again, asked = split_contender(words[2])
    assert build(assign({"method": again, **common}, asked))[0] == whole


def test_every_short_option_is_one_of_run() -> None:
    assert {option.replace("-", "_"): key for key, option in SHORT.items()}.items() <= keys().items()
