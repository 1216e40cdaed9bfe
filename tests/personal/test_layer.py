"""What a client uses: the running mean, the pool, the log prior."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import Scripted, floats, task
from torch import nn

import sparsona
from sparsona.errors import InputError
from sparsona.experiment import assign, build
from sparsona.message import Message, Vector
from sparsona.method import Fit, Model
from sparsona.ops.mixture import Mixture
from sparsona.personal.kept import leaves
from sparsona.personal.layer import METHOD_ALONE, PersonalLayer

WHERE = task(nn.Linear(1, 2))


@dataclass(frozen=True)
class Runner:
    """What the layer asks of a runner: the buffers of its net, and the client's log prior."""

    buffers: Vector
    prior: Vector | None = None


@dataclass(frozen=True)
class Client(Scripted):
    """A scripted client with a runner."""

    runner: Runner = Runner(np.zeros(0, np.float32))


def client(**how: Any) -> Any:
    return Client(WHERE, floats(1, 1, 1, 1), **how)


def used(layer: PersonalLayer, *trained: Model, assembled: Model) -> Model:
    """What a client uses after these trainings, whose method then makes `assembled`."""
    state = layer.start(WHERE, "a")
    for model in trained:
        state = layer.after(state, Fit(None, Message(), model), client())
    return layer.model(state, assembled, client())


def test_without_settings_a_client_uses_the_methods_model_and_remembers_nothing() -> None:
    assert METHOD_ALONE.start(WHERE, "a") is None
    assert used(METHOD_ALONE, floats(1, 1, 1, 1), assembled=floats(7, 7, 7, 7)) == pytest.approx([7] * 4)


def test_a_running_mean_takes_the_place_of_the_methods_model() -> None:
    layer = PersonalLayer(average=0.75)
    assert used(layer, assembled=floats(7, 7, 7, 7)) == pytest.approx([7] * 4), "nothing is trained yet"
    found = used(layer, floats(4, 4, 4, 4), floats(8, 8, 8, 8), assembled=floats(0, 0, 0, 0))
    assert found == pytest.approx([5] * 4)


def test_a_phase_that_trains_nothing_leaves_the_mean_as_it_is() -> None:
    layer = PersonalLayer(average=0.5)
    state = layer.after(layer.start(WHERE, "a"), Fit(None, Message(), floats(2, 2, 2, 2)), client())
    assert layer.after(state, Fit(None, Message(), None), client()) == state


def test_a_model_of_several_vectors_is_averaged_vector_by_vector() -> None:
    one = Mixture((floats(0, 0, 0, 0), floats(2, 2, 2, 2)), floats(0.5, 0.5))
    two = Mixture((floats(4, 4, 4, 4), floats(2, 2, 2, 2)), floats(1, 0))
    found = used(PersonalLayer(average=0.5), one, two, assembled=two)
    assert isinstance(found, Mixture)
    assert [leaf.tolist() for leaf in leaves(found)[:2]] == [[2] * 4, [2] * 4]
    assert found.mixture.tolist() == [0.75, 0.25]


def test_a_pool_averages_a_net_trained_alone_and_the_clients_own() -> None:
    layer = PersonalLayer(average=0.5, pool=("own", "alone"))
    found = used(layer, floats(1, 1, 1, 1), floats(1, 1, 1, 5), assembled=floats(9, 9, 9, 9))
    assert isinstance(found, Mixture)
    assert found.mixture.tolist() == [0.5, 0.5]
    assert leaves(found)[0].tolist() == [1, 1, 1, 3]
    assert leaves(found)[1].tolist() == [1.5] * 4, "alone it is at 1 and then at 2"


def test_own_without_a_running_mean_is_the_model_trained_last() -> None:
    layer = PersonalLayer(average=0.0, pool=("own", "shared"))
    found = used(layer, floats(1, 1, 1, 1), floats(2, 2, 2, 2), assembled=floats(9, 9, 9, 9))
    assert isinstance(found, Mixture)
    assert [leaf.tolist() for leaf in leaves(found)[:2]] == [[2] * 4, [9] * 4]


def test_the_log_prior_stands_in_the_output_bias_of_every_net_of_the_model() -> None:
    local = client(runner=Runner(np.zeros(0, np.float32), floats(1, 2)))
    assert METHOD_ALONE.model(None, floats(0, 0, 5, 5), local) == pytest.approx([0, 0, 6, 7])
    both = METHOD_ALONE.model(None, Mixture((floats(0, 0, 0, 0), floats(1, 1, 1, 1)), floats(0.5, 0.5)), local)
    assert isinstance(both, Mixture)
    assert [leaf.tolist() for leaf in leaves(both)[:2]] == [[0, 0, 1, 2], [1, 1, 2, 3]]


def test_a_model_that_is_named_twice_is_refused_before_the_first_turn() -> None:
    with pytest.raises(InputError, match="names a model twice"):
        PersonalLayer(pool=("own", "own")).start(WHERE, "a")


def test_all_are_the_experts_that_data_and_model_allow() -> None:
    layer = PersonalLayer(pool=("all",))
    assert layer.resolved(text=False, buffers=False).pool == ("alone", "own", "shared", "trees", "linear")
    assert layer.resolved(text=True, buffers=True).pool == ("own", "shared")


WARDS: dict[str, Any] = {"rounds": 3, "clients": 3, "data": "digits", "model": "mlp:16", "partition": "iid"}


@pytest.mark.parametrize("weights", ["equal", "common", "own"])
@pytest.mark.parametrize("method", ["fedavg", "local", "pfedgate"])
def test_a_pool_with_experts_resumes_to_the_bit_and_its_file_predicts_as_it_did(
    method: str, weights: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {**WARDS, "personal": {"pool": "linear+shared", "weights": weights}}
    whole = sparsona.run(method, **settings)
    sparsona.run(method, **settings | {"rounds": 2}, out=tmp_path / "run")
    longer = sparsona.run(method, **settings, out=tmp_path / "run", resume=True)
    assert longer.summary["digest"] == whole.summary["digest"]
    assert longer.summary["accuracy"] == whole.summary["accuracy"]
    name = sorted(whole.models)[0]
    inputs = np.random.default_rng(0).integers(0, 17, (20, 1, 8, 8), np.uint8)
    mine, again = whole.models[name], sparsona.load(tmp_path / "run").models[name]
    assert np.array_equal(again.probabilities(inputs), mine.probabilities(inputs))
    assert isinstance(mine.model, Mixture)
    if method == "local":
        assert whole.history[-1].up.total == 0, "alone nothing travels, whatever the weights"
    elif weights != "equal":
        plain = sparsona.run(method, **WARDS)
        more = whole.history[-1].up.total - plain.history[-1].up.total
        assert 0 < more < 3 * 60, "a handful of numbers, counted"


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_a_pool_mixes_numbers_and_labels(task: str) -> None:
    rng = np.random.default_rng(0)
    data = {}
    for ward in ("east", "west"):
        x = rng.normal(size=(150, 3)).astype(np.float32)
        score = np.where(x[:, 0] > 0, x[:, 1], -x[:, 1])
        y = score if task == "regression" else np.stack([score > 0, x[:, 2] > 0], 1)
        data[ward] = x, y.astype(np.float64)
    settings: dict[str, Any] = {"data": data, "task": task, "rounds": 4}
    pooled = sparsona.run("fedavg", **settings, personal={"pool": ["trees", "shared"]})
    metric = pooled.summary["metric"]
    plain = sparsona.run("fedavg", **settings).summary[metric]["pre"]["mean"]
    mine = pooled.summary[metric]["pre"]["mean"]
    assert mine < plain if task == "regression" else mine > plain


def test_nets_with_statistics_have_no_second_net() -> None:
    layer = PersonalLayer(pool=("alone",))
    local = client(runner=Runner(np.zeros(3, np.float32)))
    with pytest.raises(InputError, match="for nets without BatchNorm"):
        layer.after(layer.start(WHERE, "a"), Fit(None, Message(), floats(0, 0, 0, 0)), local)


def test_a_method_suggests_an_average_and_an_experiment_decides() -> None:
    assert build({"method": "fedthin"})[0].personal.average == 0.7
    assert build({"method": "fedavg"})[0].personal.average == 0.0
    chosen, _ = build(assign({"method": "fedthin"}, ["personal.average=0", "pool=own+alone"]))
    assert chosen.personal == PersonalLayer(0.0, ("own", "alone"))
    named, _ = build(assign({"method": "fedavg"}, ["personal.pool=trees,shared", "personal.weights=own"]))
    assert named.personal == PersonalLayer(0.0, ("trees", "shared"), "own")
    with pytest.raises(InputError, match=r"personal\.average: input should be less than 1"):
        build({"method": "fedavg", "personal": {"average": 1.0}})


COMMON: dict[str, Any] = {"data": "digits", "clients": 10, "partition": "sorted:1.0", "rounds": 6}


@pytest.mark.parametrize("trainer", ["plain", "fused"])
def test_the_parts_help_where_they_should(trainer: str) -> None:
    def accuracy(*settings: str) -> float:
        result = sparsona.run("fedavg", **COMMON, trainer=trainer, model="mlp:32", set=settings)
        return float(result.summary["accuracy"]["pre"]["mean"])

    plain = accuracy()
    assert accuracy("logit_prior=true") > plain + 0.1, "clients with two classes each know which"
    assert accuracy("personal.average=0.7") > plain + 0.1


@pytest.mark.parametrize("method", ["fedavg", "fedem", "pfedgate", "ditto"])
def test_a_run_with_prior_and_mean_resumes_and_its_files_predict_as_it_did(method: str, tmp_path: Path) -> None:
    pool = ["own", "alone"] if method in ("fedavg", "ditto") else []
    settings: dict[str, Any] = COMMON | {"rounds": 3, "clients": 4, "training": {"logit_prior": True}}
    settings |= {"personal": {"average": 0.5, "pool": pool}, "model": "mlp:16"}
    whole = sparsona.run(method, **settings)
    sparsona.run(method, **settings | {"rounds": 2}, out=tmp_path / "run")
    longer = sparsona.run(method, **settings, out=tmp_path / "run", resume=True)
    assert longer.summary["digest"] == whole.summary["digest"]
    assert longer.summary["accuracy"] == whole.summary["accuracy"]
    name = sorted(whole.models)[0]
    inputs = np.random.default_rng(0).integers(0, 17, (20, 1, 8, 8), np.uint8)
    again = sparsona.load(tmp_path / "run").models[name]
    assert np.array_equal(again.predict(inputs), whole.models[name].predict(inputs))


def test_a_pool_is_the_same_on_every_engine() -> None:
    settings: dict[str, Any] = {**WARDS, "rounds": 2, "personal": {"pool": "trees+shared", "weights": "common"}}
    one, other = (sparsona.run("fedavg", **settings, engine=engine) for engine in ("inprocess", "pool"))
    assert one.summary["digest"] == other.summary["digest"]
    assert one.summary["accuracy"] == other.summary["accuracy"]
    for name in one.models:
        mine, theirs = one.models[name].model, other.models[name].model
        assert isinstance(mine, Mixture)
        assert isinstance(theirs, Mixture)
        assert np.array_equal(mine.mixture, theirs.mixture)
