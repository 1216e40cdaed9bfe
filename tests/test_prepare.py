"""From settings to a run that can start: whose the rows are."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import sparsona
from sparsona.data import uci
from sparsona.errors import InputError
from sparsona.federation.schedule import Sampled
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.prepare import prepare

ROWS = [f"{'ulm' if k % 3 else 'aue'},{k * k % 17},{k % 2}" for k in range(60)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One file of two towns' rows."""
    path = tmp_path / "all.csv"
    path.write_text("\n".join(["town,x,label", *ROWS]) + "\n")
    return path


def test_clients_are_not_made_up(file: Path) -> None:
    given = {"method": "local", "data": f"csv:{file}", "columns": {"drop": "town"}}
    with pytest.raises(InputError) as caught:
        prepare(given)
    assert str(caught.value) == f"{file} is one file: pass --client COLUMN, or --partition to deal its rows out"
    assert len(prepare({**given, "partition": "iid", "clients": 4}).setup.federation.clients) == 4


def test_a_column_says_whose_the_rows_are(file: Path) -> None:
    prepared = prepare({"method": "local", "data": f"csv:{file}", "columns": {"client": "town"}})
    assert sorted(prepared.setup.federation.clients) == ["aue", "ulm"]


def test_nor_are_they_in_arrays(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    np.savez(tmp_path / "all.npz", x=x, y=y)
    with pytest.raises(InputError, match=r"all.npz is one file: add an array client to it, or --partition to deal"):
        prepare({"method": "local", "data": f"npz:{tmp_path / 'all.npz'}"})
    with pytest.raises(InputError, match="data is one table: give client=COLUMN, or one table per client"):
        prepare({"method": "local"}, data=(x, y))
    assert len(prepare({"method": "local", "partition": "iid"}, data=(x, y)).setup.federation.clients) == 10


@pytest.fixture
def wards(tmp_path: Path) -> Path:
    """A folder of three wards, the last of which has one row."""
    folder = tmp_path / "wards"
    folder.mkdir()
    for name, count in {"a": 30, "b": 30, "c": 1}.items():
        rows = [f"{k * k % 17},{k % 2}" for k in range(count)]
        (folder / f"{name}.csv").write_text("\n".join(["x,label", *rows]) + "\n")
    return folder


def test_no_client_is_left_out_unsaid(wards: Path) -> None:
    given = {"method": "local", "data": f"folder:{wards}", "clients": 2}
    with pytest.raises(InputError) as caught:
        prepare(given)
    assert str(caught.value) == (
        "wards has 3 clients, 2 are asked for; leave --clients out, "
        "or pass --partition groups to draw 2 of them by chance"
    )
    assert len(prepare({**given, "partition": "groups:2"}).setup.federation.clients) == 2


def test_a_client_with_too_few_rows_is_told_with_its_file(wards: Path) -> None:
    given = {"method": "local", "data": f"folder:{wards}"}
    with pytest.raises(InputError) as caught:
        prepare(given)
    assert str(caught.value) == (
        f"client 'c' ({wards}/c.csv) has 1 sample and needs 2; give it more, "
        "or leave small clients out with --partition groups:2"
    )
    assert sorted(prepare({**given, "partition": "groups:2"}).setup.federation.clients) == ["a", "b"]


OTHER = {"lr": 0.03, "epochs": 2, "steps": 3, "repeats": 2, "weight_decay": 0.01}


@pytest.mark.parametrize("method", [name for name, kind in METHODS if kind.unused and not kind.alone])
def test_a_training_setting_that_changes_nothing_is_named(method: str, caplog: pytest.LogCaptureFixture) -> None:
    usual: dict[str, Any] = {"method": method, "clients": 2, "rounds": 2, "partition": "iid", "engine": "inprocess"}
    with caplog.at_level(logging.WARNING):
        before = sparsona.run(method, **{k: v for k, v in usual.items() if k != "method"})
    assert "changes nothing" not in caplog.text
    for setting in METHODS.get(method).unused:
        changed = {**usual, "training": {setting: OTHER[setting]}}
        with caplog.at_level(logging.WARNING):
            prepare(changed)
        assert f"training.{setting} changes nothing in {method}" in caplog.text
        after = sparsona.run(method, **{k: v for k, v in changed.items() if k != "method"})
        assert after.summary["digest"] == before.summary["digest"]


def test_owners_of_a_published_table_are_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sparsona data show heart-disease` shows them."""
    monkeypatch.setattr(uci, "HOSPITALS", dict.fromkeys(uci.HOSPITALS, ("", 0, 20)))
    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path))
    (tmp_path / "heart-disease").mkdir()
    lines = [f"{40 + 7 * k % 13}.0,1.0,1,145,233,1,2,150,0,2.3,3,0,6,{k % 2}" for k in range(20)]
    for hospital in uci.HOSPITALS:
        (tmp_path / "heart-disease" / f"processed.{hospital}.data").write_text("\n".join(lines) + "\n")
    given = {"method": "local", "data": "heart-disease"}
    assert sorted(prepare(given).setup.federation.clients) == sorted(uci.HOSPITALS)
    with pytest.raises(InputError, match=r"heart-disease has 4 clients, 3 are asked for; leave --clients out"):
        prepare({**given, "clients": 3})
    assert len(prepare({**given, "partition": "iid", "clients": 3}).setup.federation.clients) == 3


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 10))


@pytest.mark.parametrize("model", [net, Net, net()])
def test_a_model_may_be_a_module_or_what_makes_one(model: Any) -> None:
    assert prepare({"method": "local"}, model=model).setup.task.layout.size == 650


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (
            nn.Linear,
            r"the model Linear cannot be made \(.*missing 2 required .*\): give a module, or a function without",
        ),
        (lambda: 5, "the model <lambda> makes no torch module, but something of type int"),
        (nn.LazyLinear(10), "the model's weight has no shape yet: call the module once on a sample, then give it"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), "the model's 1.weight has no shape yet"),
        (nn.Sequential(nn.Flatten(), nn.LazyBatchNorm1d(affine=False)), "the model's 1.running_mean has no shape yet"),
    ],
)
def test_a_model_that_is_none_yet_is_told(model: Any, line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        prepare({"method": "local"}, model=model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "objects", "line"),
    [
        (
            {"method": "local"},
            {"method": FedAvg()},
            "method is given as an object and as 'local': leave one of them out",
        ),
        ({"method": "local", "model": "mlp"}, {"model": net()}, "model is given as an object and as 'mlp'"),
        ({"method": "local", "data": "mnist"}, {"data": {}}, "data is given as an object and as 'mnist'"),
        (
            {"method": "local", "schedule": {"sample": 0.5}},
            {"schedule": Sampled()},
            "schedule is given as an object and as {'sample': 0.5}",
        ),
    ],
)
def test_a_name_beside_an_object_is_refused(settings: dict[str, Any], objects: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        prepare(settings, **objects)
