from __future__ import annotations

import json
import os
import re
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

import sparsona
from sparsona.data import Columns
from sparsona.errors import Diverged, InputError, RunError
from sparsona.federation.schedule import Sampled
from sparsona.methods.fedprox import FedProx
from sparsona.report.html import write_report
from sparsona.runs.about import read_about
from sparsona.runs.records import RoundReport
from sparsona.system import StopRequest
from sparsona.training.config import TrainConfig


def test_the_same_seed_gives_the_same_digest_and_another_does_not() -> None:
    one, two, other = (
        sparsona.run("fedavg", data="digits", rounds=3, clients=4, seed=seed).summary["digest"] for seed in (0, 0, 1)
    )
    assert one == two != other


def test_the_digest_is_pinned() -> None:
    """The whole chain, from the seed to the last bit of the state, on one torch thread.

    A change here is a change of results: say so in the CHANGELOG. (The bits of float32 sums depend on the CPU's
    vector instructions, so this compares a rounded sum of the weights.)
    """
    result = sparsona.run("fedavg", data="digits", rounds=3, clients=4, partition="iid")
    weights = result.models["c0"].model
    assert isinstance(weights, np.ndarray)
    assert float(np.abs(weights).sum()) == pytest.approx(PINNED_SUM, rel=1e-4)


PINNED_SUM = 261.548


def test_history_scores_and_models_agree() -> None:
    result = sparsona.run("local", data="digits", rounds=4, clients=5)
    assert [report.round for report in result.history] == [1, 2, 3, 4]
    last = result.summary["accuracy"]["pre"]
    assert {**result.history[-1].scores["pre"], "pooled": last["weighted"]} == pytest.approx(last)
    mean = np.mean([scores["pre"] for scores in result.scores.values()])
    assert result.summary["accuracy"]["pre"]["mean"] == pytest.approx(mean)
    assert set(result.models) == set(result.scores)


def test_a_model_predicts_raw_inputs_as_it_was_tested(tmp_path: Path) -> None:
    from sparsona.data import load

    result = sparsona.run("local", data="digits", rounds=4, clients=3, out=tmp_path / "run")
    digits = load("digits")
    model = result.models["c1"]
    predictions = model.predict(digits.inputs)
    assert predictions.shape == (len(digits),)
    assert (predictions == digits.targets).mean() > 0.3
    tensors = model.tensors()
    assert set(tensors) == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}


def test_own_arrays_with_own_test_parts_and_an_own_module() -> None:
    rng = np.random.default_rng(0)

    def part(n: int, flip: bool) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, 6)).astype(np.float32)
        return x, ((x[:, 0] > 0) ^ flip).astype(np.int64)

    data = {name: {"train": part(60, flip), "test": part(30, flip)} for name, flip in (("a", False), ("b", True))}
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    local = sparsona.run("local", data=data, model=module, rounds=20, training={"lr": 0.3})
    assert local.summary["accuracy"]["pre"]["mean"] > 0.85
    assert local.summary["partition"] == "groups"
    fed = sparsona.run("fedavg", data=data, model=module, rounds=20, training={"lr": 0.3})
    assert fed.summary["accuracy"]["pre"]["mean"] < 0.7, "opposite labels cannot share a model"


def test_a_torch_dataset_per_client() -> None:
    from sparsona.data import from_torch

    torch.manual_seed(0)
    x = torch.randn(80, 3)
    sets = {name: torch.utils.data.TensorDataset(x, (x[:, 1] > 0).long()) for name in ("one", "two")}
    result = sparsona.run("fedavg", data=from_torch(sets), model=nn.Linear(3, 2), rounds=10, training={"lr": 0.5})
    assert result.summary["accuracy"]["pre"]["mean"] > 0.8


def test_new_clients_are_held_out_and_adapt() -> None:
    result = sparsona.run("fedavg", data="digits", clients=10, rounds=3, new_clients=0.2)
    assert result.summary["clients"] == 8
    new = result.summary["new_clients"]
    assert new["count"] == 2
    assert set(new["accuracy"]) == {"pre", "post"}
    assert new["bytes"]["down"] > 2 * 3 * result.summary["weights"]
    assert len(result.models) == 8


def test_a_module_that_returns_a_tuple_is_named() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return self.layer(x.flatten(1)), 1

    with pytest.raises(InputError, match="returns a tuple without logits: its forward must return one tensor"):
        sparsona.run("fedavg", data="digits", model=Pair(), rounds=1)


def test_the_callers_module_is_left_as_it_is() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    before = parameters_to_vector(module.parameters()).detach().clone()
    one = sparsona.run("fedavg", data="digits", model=module, rounds=2)
    assert torch.equal(parameters_to_vector(module.parameters()), before)
    assert one.summary["digest"] == sparsona.run("fedavg", data="digits", model=module, rounds=2).summary["digest"]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(5, 10)), r"does not fit digits, whose samples have shape \(1, 8, 8\)"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "digits has 10 classes|does not fit digits"),
    ],
)
def test_a_module_that_does_not_fit_is_named_at_once(module: nn.Module, line: str) -> None:
    with pytest.raises(InputError, match=line):
        sparsona.run("fedavg", data="digits", model=module, rounds=1)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"clients": 5000}, "5000 clients"),
        ({"partition": "classes:99"}, "99"),
        ({"partition": "nowhere"}, "unknown partition 'nowhere'"),
        ({"data": "no-such"}, "unknown data set 'no-such'"),
        ({"model": "resnet"}, "unknown model 'resnet'"),
        ({"model": "convnet2"}, "10"),
        ({"engine": "warp"}, "unknown engine 'warp'"),
        ({"device": "cuda"}, "sees no CUDA"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"new_clients": 0.01}, "leaves 0 new ones"),
        ({"schedule": {"availability": {"zz": 0.5}}}, "unknown client 'zz'"),
        ({"training": {"lr": 1e30}}, "lower it"),
    ],
)
def test_bad_input_is_one_line(settings: dict[str, object], line: str) -> None:
    if settings.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(sparsona.errors.SparsonaError, match=line) as caught:
        sparsona.run("fedavg", rounds=2, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_torch_threads_are_as_they_were() -> None:
    torch.set_num_threads(2)
    sparsona.run("fedavg", rounds=1, clients=2)
    assert torch.get_num_threads() == 2


def test_without_out_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sparsona.run("fedavg", rounds=1, clients=2)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_another_experiment_is_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sparsona.run("fedavg", rounds=1, clients=2, out=run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="already holds a run: add --resume"):
        sparsona.run("fedavg", rounds=1, clients=2, out=run)
    with pytest.raises(RunError, match=r"belongs to another experiment \(seed differs\)"):
        sparsona.run("fedavg", rounds=1, clients=2, seed=1, out=run, resume=True)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="is not a run directory"):
        sparsona.run("fedavg", rounds=1, clients=2, out=tmp_path / "papers")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_plain_packing_changes_bytes_and_nothing_else() -> None:
    tight, plain = (
        sparsona.run("fedpse", rounds=2, clients=3, engine="inprocess", packing=packing).summary
        for packing in ("tight", "plain")
    )
    assert tight["digest"] == plain["digest"]
    for way in ("up", "down"):
        assert tight["bytes"][way] < plain["bytes"][way]


def test_ordinary_python_arguments_are_taken() -> None:
    shared: dict[str, object] = {"clients": 2, "rounds": 1, "partition": "iid", "engine": "inprocess"}
    plain = sparsona.run("local", seed=3, training={"lr": 0.25}, **shared).summary["digest"]  # type: ignore[arg-type]
    for given in (
        {"seed": np.int64(3), "training": {"lr": np.float32(0.25)}},
        {"seed": 3, "training": TrainConfig(lr=0.25)},
        {"seed": 3, "set": "lr=.25"},
        {"seed": 3, "set": ["lr=.25"]},
    ):
        assert sparsona.run("local", **given, **shared).summary["digest"] == plain  # type: ignore[arg-type]


def test_columns_may_be_an_object_beside_what_is_declared() -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    given = {"a": (x, y), "b": (x, y)}
    result = sparsona.run("local", data=given, columns=Columns(scaling="none"), task="regression", rounds=1)
    schema = result.models["a"].card.schema
    assert (schema.scaling, schema.task) == ("none", "regression")
    with pytest.raises(InputError, match="columns: input should be a dictionary or an instance of Columns, not 'y'"):
        sparsona.run("local", data=given, columns="y", task="regression", rounds=1)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"data": None}, "data is None: give data, the name of a data set, or leave it out for 'digits'"),
        ({"model": None}, "a model is a name such as 'mlp', or a torch module, not a NoneType"),
        ({"model": 5}, "a model is a name such as 'mlp', or a torch module, not a int"),
        ({"objective": "mse"}, r"an objective is one such as sparsona\.regression\(\), not a str"),
        ({"objective": nn.MSELoss()}, r"an objective is one such as sparsona\.regression\(\), not a MSELoss"),
        (
            {"schedule": "x"},
            "a schedule is a mapping such as {'sample': 0.5}, or an object with a method plan, not a s",
        ),
        ({"schedule": Sampled}, "a schedule is a mapping such as .*, or an object with a method plan, not a"),
        ({"method": None}, r"a method is a name such as 'fedavg', or a Method such as FedAvg\(\), not a NoneType"),
        ({"training": "fast"}, "training: input should be a dictionary or an instance of TrainConfig, not 'fast'"),
        ({"seed": object()}, "setting seed is of type object: give a text"),
        ({"method": FedProx(), "options": {"mu": 5}}, "method 'fedprox' is given as an object, which has its options"),
        ({"method": FedProx(), "set": "options.mu=5"}, "method 'fedprox' is given as an object, which has its options"),
        ({"method": FedProx(mu=-3.0)}, "method 'fedprox': mu: input should be greater than or equal to 0, not -3.0"),
    ],
)
def test_an_object_that_is_none_of_its_kind_is_named(given: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        sparsona.run(**{"rounds": 1, **given})
    assert "\n" not in str(caught.value)


def test_what_is_no_method_is_named() -> None:
    with pytest.raises(InputError, match="or a Method such as FedAvg\\(\\), not a dict"):
        sparsona.run({"method": "fedavg"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"lr": 0.05}, {"training": {"lr": 0.05}}),
        ({"mu": 0.5}, {"options": {"mu": 0.5}}),
        ({"sample": 0.5, "schedule": {"dropout": 0.1}}, {"schedule": {"sample": 0.5, "dropout": 0.1}}),
        ({"training.lr": 0.05}, {"training": {"lr": 0.05}}),
        ({"training": TrainConfig(lr=0.05, batch=8), "epochs": 2}, {"training": {"lr": 0.05, "batch": 8, "epochs": 2}}),
        ({"server.lr": 0.5}, {"options": {"server": {"lr": 0.5}}}),
    ],
)
def test_any_key_of_the_settings_is_a_keyword(keywords: dict[str, Any], where: dict[str, Any], tmp_path: Path) -> None:
    """Read back from the experiment that the run has written."""
    sparsona.run("fedprox", clients=2, rounds=1, out=tmp_path / "run", **keywords)
    written = tomllib.loads((tmp_path / "run" / "experiment.toml").read_text())
    for section, keys in where.items():
        for key, value in keys.items():
            found = written[section][key]
            assert (found if not isinstance(value, dict) else {k: found[k] for k in value}) == value


def test_a_name_that_may_be_both_is_refused_with_both_names() -> None:
    with pytest.raises(InputError, match=r"training\.steps.*options=.*training="):
        sparsona.run("spfl", rounds=1, steps=3)
    with pytest.raises(InputError, match="'lrr'"):
        sparsona.run("fedavg", lrr=0.1)
    with pytest.raises(InputError, match="mu"):
        sparsona.run(FedProx(), mu=0.1)


def _ward(rows: int, seed: int) -> tuple[Any, Any]:
    inputs = np.random.default_rng(seed).normal(size=(rows, 4))
    return inputs, np.where(inputs[:, 0] > 0, "ill", "well")


@pytest.mark.parametrize("method", ["fedavg", "ditto", "fedpse"])
def test_a_client_that_comes_late_gets_its_own_model(method: str, tmp_path: Path) -> None:
    wards = {"east": _ward(60, 0), "west": _ward(60, 1)}
    sparsona.run(method, data=wards, rounds=3, out=tmp_path / "run")
    before = sorted((path, path.read_bytes()) for path in (tmp_path / "run").rglob("*") if path.is_file())
    rows, labels = _ward(60, 2)
    found = sparsona.adapt(tmp_path / "run", {"north": (rows, labels)}, epochs=5)["north"]
    assert np.mean(found.predict(rows) == labels) > 0.7
    assert before == sorted((path, path.read_bytes()) for path in (tmp_path / "run").rglob("*") if path.is_file())
    with pytest.raises(InputError, match="east"):
        sparsona.adapt(tmp_path / "run", {"east": (rows, labels)})
    with pytest.raises(InputError, match="x3"):
        sparsona.adapt(tmp_path / "run", (rows[:, :3], labels))


def test_a_finished_run_goes_on_with_more_clients_and_says_so(tmp_path: Path) -> None:
    wards, out = {"east": _ward(60, 0), "west": _ward(60, 1)}, tmp_path / "run"
    first = sparsona.run("fedavg", data=wards, rounds=2, out=out)
    more = {**wards, "north": _ward(60, 2)}
    with pytest.raises(RunError, match="another experiment"):
        sparsona.run("fedavg", data=more, rounds=4, out=out, resume=True)
    done = sparsona.run("fedavg", data=more, rounds=4, out=out, resume=True, add=True)
    assert len(done.history) == 4
    assert sorted(done.models) == ["east", "north", "west"]
    assert [report.round for report in done.history[:2]] == [report.round for report in first.history]
    assert read_about(out).added == ("after round 2: new clients north",)
    assert done.models["east"].card.schema == first.models["east"].card.schema, "inputs are scaled as before"
    for data, problem in (({"north": more["north"]}, "east"), (more, "have not changed")):
        with pytest.raises(RunError, match=problem):
            sparsona.run("fedavg", data=data, rounds=6, out=out, resume=True, add=True)


def test_a_run_that_diverges_is_shown_as_diverged(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"clients": 3, "partition": "iid", "rounds": 2, "engine": "inprocess"}
    for method in ("local", "fedavg"):
        sparsona.run(method, out=tmp_path / method, **shared)
    with pytest.raises(Diverged, match="lr=auto"):
        sparsona.run("fedprox", out=tmp_path / "fedprox", training={"lr": 1e9}, **shared)
    answer = write_report([tmp_path], tmp_path / "report.html")
    assert answer.method != "fedprox"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    rows = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["methods"]  # type: ignore[index]
    assert {row["label"]: (row["state"], row["pre"] is None) for row in rows} == {
        "local": ("", False), "fedavg": ("", False), "fedprox": ("diverged", True)
    }  # fmt: skip


def interrupt(report: RoundReport) -> None:
    if report.round == 2:
        os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_run_gives_its_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    result = sparsona.run("fedavg", clients=2, rounds=9, engine="inprocess", on_round=interrupt, out=tmp_path / "r")
    assert result.summary["rounds"] == len(result.history) == 2
    assert sorted(result.models) == ["c0", "c1"]
    whole = sparsona.run("fedavg", clients=2, rounds=9, engine="inprocess", out=tmp_path / "r", resume=True)
    straight = sparsona.run("fedavg", clients=2, rounds=9, engine="inprocess")
    assert whole.summary["digest"] == straight.summary["digest"]


def test_a_script_is_interrupted_and_its_run_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        sparsona.run("fedavg", clients=2, rounds=9, engine="inprocess", on_round=interrupt, out=tmp_path / "r")
    found = sparsona.load(tmp_path / "r")
    assert found.summary["rounds"] == len(found.history) == 2
    assert found.summary["finished"] is False
    assert found.summary["bytes"]["up"] == sum(report.up.total for report in found.history)
    assert found.summary["accuracy"]["pre"]["mean"] == found.history[-1].scores["pre"]["mean"]
    assert "not finished" in repr(found)
    assert len(found.models) == 0


def test_the_second_interrupt_raises_and_the_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequest(True) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
