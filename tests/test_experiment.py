from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsona.errors import InputError
from sparsona.experiment import assign, build, make_method, read, to_toml
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedprox import FedProx
from sparsona.training.config import TrainConfig


def test_the_file_is_complete_and_reads_back_equal() -> None:
    experiment, method = build(
        {
            "method": "fedprox",
            "options": {"mu": 0.5},
            "data": 'folder:C:\\data "x"',
            "training": {"drops": [0.5, 0.75], "steps": 3, "clip": 10},
            "schedule": {"availability": {"c0": 0.5, "ward 3": 1}},
        }
    )
    again, same = build(tomllib.loads(to_toml(experiment)))
    assert again == experiment
    assert same == method
    assert "epochs = 1" in to_toml(experiment), "defaults are written, too"


def test_a_file_of_an_earlier_version_reads_back_equal() -> None:
    """Earlier versions wrote tables within a section, and lists, on one line: such a run can still be resumed."""
    earlier = """
method = "fedpse"
data = "digits"
rounds = 3

[options]
sparsity = 0.8
server = {optimizer = "sgd", lr = 0.5}

[training]
drops = [0.5, 0.75]

[schedule]
availability = {c0 = 0.5, "ward 3" = 1.0}
"""
    experiment, method = build(tomllib.loads(earlier))
    text = to_toml(experiment)
    assert build(tomllib.loads(text)) == (experiment, method)
    assert to_toml(build(tomllib.loads(text))[0]) == text, "written again, the file is the same"


@given(st.text(max_size=20), st.floats(0.001, 1e6), st.integers(1, 10**9))
def test_any_text_and_number_survives(text: str, lr: float, rounds: int) -> None:
    settings = {"method": "local", "data": text, "rounds": rounds, "training": {"lr": lr}}
    experiment, _ = build(settings)
    assert build(tomllib.loads(to_toml(experiment)))[0] == experiment


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "does not name a method: choose one of .*fedavg"),
        ({"method": "fedavgg"}, "unknown method 'fedavgg'; did you mean 'fedavg'"),
        ({"method": "fedavg", "round": 3}, "unknown setting 'round'; did you mean 'rounds'"),
        ({"method": "fedavg", "rounds": 0}, "rounds: input should be greater than or equal to 1, not 0"),
        ({"method": "fedavg", "rounds": "many"}, "rounds: .*integer.*'many'"),
        ({"method": "fedavg", "training": {"lr": -1}}, r"training\.lr: .*greater than 0, not -1"),
        ({"method": "fedavg", "training": {"learning_rate": 1}}, r"unknown setting training\.learning_rate"),
        ({"method": "fedavg", "training": {"optimizer": "adamm"}}, r"training\.optimizer: .*'sgd' or 'adam'"),
        ({"method": "fedavg", "schedule": {"sample": 0}}, r"schedule\.sample"),
        (
            {"method": "fedavg", "options": {"mu": 1}},
            "method 'fedavg' has no option 'mu'; choose one of late, merge, server",
        ),
        ({"method": "fedprox", "options": {"nu": 1}}, "has no option 'nu'; did you mean 'mu'?"),
        ({"method": "fedprox", "options": {"mu": "x"}}, "mu: .*number"),
    ],
)
def test_bad_settings_get_one_line_that_names_them(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        build(settings)
    assert "\n" not in str(caught.value)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    with pytest.raises(InputError, match="No such file"):
        read(file)
    file.write_text("method = fedavg")
    with pytest.raises(InputError, match="not a TOML file"):
        read(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a TOML file"):
        read(file)


def test_set_finds_where_a_key_belongs() -> None:
    out = assign({"method": "fedprox"}, ["mu=0.5", "lr=0.01", "rounds=7", "schedule.loss=0.1", "split.use=train"])
    assert out == {
        "method": "fedprox",
        "options": {"mu": 0.5},
        "training": {"lr": 0.01},
        "rounds": 7,
        "schedule": {"loss": 0.1},
        "split": {"use": "train"},
    }
    assert assign({"method": "local"}, ["drops=[0.5]", "drop_last=true"])["training"] == {
        "drops": [0.5],
        "drop_last": True,
    }
    with pytest.raises(InputError, match="nothing is called 'muu'; did you mean 'mu'"):
        assign({"method": "fedprox"}, ["muu=1"])
    with pytest.raises(InputError, match="key=value"):
        assign({"method": "fedprox"}, ["mu"])


def test_same_work_ignores_where_it_is_done() -> None:
    one, _ = build({"method": "fedavg"})
    other, _ = build({"method": "fedavg", "workers": 3})
    assert one.same_work(other) is None
    assert one.same_work(build({"method": "fedavg", "training": {"lr": 0.2}})[0]) == "training.lr"
    assert one.same_work(build({"method": "fedprox"})[0]) == "method"


def test_more_rounds_are_the_same_work_but_with_a_privacy_budget() -> None:
    """The noise was chosen for the rounds."""
    for privacy, found in (({}, None), ({"epsilon": 8}, "rounds")):
        one, other = (build({"method": "fedavg", "rounds": rounds, "privacy": privacy})[0] for rounds in (5, 6))
        assert one.same_work(other) == found


def test_methods_are_made_from_names() -> None:
    found = repr(make_method("fedprox", {"mu": 1}))
    assert found.startswith("FedProx(")
    assert "mu=1.0" in found


@dataclass(frozen=True)
class Patient(FedAvg):
    """FedAvg with an option of a type that no experiment file holds. `waits` are seconds."""

    waits: np.ndarray[Any, Any] | None = None


def test_a_method_given_as_an_object_is_checked_as_one_that_is_named() -> None:
    named, _ = build({"method": "fedprox", "options": {"mu": 0.5}})
    experiment, method = build({"method": "fedprox"}, given=FedProx(mu=np.float32(0.5)))  # type: ignore[arg-type]
    assert experiment == named
    assert repr(method) == repr(FedProx(mu=0.5))
    own = Patient(waits=np.ones(2))
    assert build({"method": "Patient"}, given=own)[1] is own


@pytest.mark.parametrize(
    ("method", "settings", "line"),
    [
        (FedProx(mu=-3.0), {}, "method 'fedprox': mu: input should be greater than or equal to 0, not -3.0"),
        (
            FedProx(server=type(FedProx().server)(lr=-1.0)),
            {},
            "method 'fedprox': server.lr: .*greater than 0, not -1.0",
        ),
        (FedProx(), {"options": {"mu": 5}}, "method 'fedprox' is given as an object, which has its options already"),
        (FedProx(), {"options": {"nope": 5}}, "method 'fedprox' is given as an object, which has its options already"),
        (FedProx(), {"rounds": 0}, "rounds: input should be greater than or equal to 1, not 0"),
        (FedProx(), {"round": 3}, "unknown setting 'round'; did you mean 'rounds'"),
    ],
)
def test_a_wrong_object_is_told_in_one_line(method: FedProx, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        build({"method": "fedprox", **settings}, given=method)
    assert "\n" not in str(caught.value)


def test_settings_of_numpy_and_sections_as_objects_are_plain() -> None:
    given = {"seed": np.int64(3), "training": TrainConfig(lr=0.25, drops=(0.5,)), "schedule": {"loss": np.float32(0.5)}}
    plain = assign(given, ["rounds=2"])
    assert (plain["seed"], plain["schedule"], plain["rounds"]) == (3, {"loss": 0.5}, 2)
    assert type(plain["seed"]) is int
    assert build({**plain, "method": "local"})[0].training == TrainConfig(lr=0.25, drops=(0.5,))
    assert "rounds" not in given
    with pytest.raises(InputError, match=r"setting training\.lr is of type object: give a text, a number"):
        assign({"training": {"lr": object()}}, [])
    with pytest.raises(InputError, match=r"training\.lr: input should be greater than 0, not -1"):
        build({**assign({"training": TrainConfig(lr=-1)}, []), "method": "local"})
