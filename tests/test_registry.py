from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from sparsona.errors import InputError
from sparsona.methods import METHODS
from sparsona.models import MODELS
from sparsona.partition import PARTITIONS
from sparsona.registry import Registry, bind, split_spec


def test_names_are_file_names() -> None:
    assert {"local", "fedavg", "fedavg-ft", "fedprox"} <= set(METHODS.names())
    assert METHODS.get("fedavg-ft").__module__ == "sparsona.methods.fedavg_ft"
    assert not any(name.startswith("-") or "_" in name for r in (METHODS, MODELS, PARTITIONS) for name in r.names())


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError, match="unknown method 'fedagv'; did you mean 'fedavg'"):
        METHODS.get("fedagv")
    with pytest.raises(InputError, match="choose one of"):
        METHODS.get("zzz")


def test_plug_ins_come_through_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(value: str) -> None:
        monkeypatch.setattr("sparsona.registry.entry_points", lambda group: [EntryPoint("theirs", value, group)])

    theirs("sparsona.methods.fedavg:FedAvg")
    registry: Registry[object] = Registry("method", "sparsona.methods")
    assert registry.get("theirs") is METHODS.get("fedavg")
    theirs("no.such.module:X")
    with pytest.raises(InputError, match=r"plug-in method 'theirs' \(no\.such\.module:X\) does not load"):
        Registry("method", "sparsona.methods").get("theirs")


def f(given: int, count: int = 3, path: str = "") -> None: ...


def g(given: int, share: float) -> None: ...


def test_arguments_are_typed_by_the_signature() -> None:
    assert bind("thing", "f:4", f, skip=1) == {"count": 4}
    assert bind("thing", "f:4:C:/x:y", f, skip=1) == {"count": 4, "path": "C:/x:y"}
    assert bind("thing", "f", f, skip=1) == {}
    with pytest.raises(InputError, match="count must be of type int, not 'x'"):
        bind("thing", "f:x", f, skip=1)
    with pytest.raises(InputError, match="needs an argument: write g:SHARE"):
        bind("thing", "g", g, skip=1)
    with pytest.raises(InputError, match="takes no argument"):
        bind("thing", "f:1", f, skip=3)
    assert split_spec("a:b:c") == ("a", ["b", "c"])
