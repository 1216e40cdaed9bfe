"""Every way in: the same numbers are the same data set, wherever they come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import sparsona
from sparsona import data
from sparsona.data import Columns, from_arrays, from_python, from_torch
from sparsona.data.schema.roles import along_of
from sparsona.data.schema.schema import Category, Number
from sparsona.errors import DataError, InputError

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

X = np.arange(12.0).reshape(6, 2) ** 1.5
Y = np.array([0, 1, 2, 0, 1, 2])


def owners() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Three owners of 40 rows; the second has a missing value, and no class is called 0. Text, float32 and float64 hold
    these numbers alike: they are multiples of 1/64."""
    rng = np.random.default_rng(3)
    found = {}
    for name in ("aachen", "bonn", "celle"):
        x = (np.round(64 * rng.normal(5, 3, (40, 3))) / 64).astype(np.float32)
        if name == "bonn":
            x[4, 1] = np.nan
        found[name] = (x, np.where(x[:, 0] + rng.normal(size=40) > 5, 7, 2))
    return found


def frame(x: np.ndarray, y: np.ndarray) -> Any:
    return pandas.DataFrame({"u": x[:, 0], "v": x[:, 1], "w": x[:, 2], "label": y})


def ways(folder: Path) -> dict[str, Any]:
    """The same numbers as files and as objects."""
    found = owners()
    for kind in ("csv", "parquet", "npz", "shuffled"):
        (folder / kind).mkdir()
    for name, (x, y) in found.items():
        frame(x, y).to_csv(folder / "csv" / f"{name}.csv", index=False)
        frame(x, y).astype({"label": float}).to_parquet(folder / "parquet" / f"{name}.parquet")
        np.savez(folder / "npz" / f"{name}.npz", x=x, y=y)
        order = ["u", "v", "w", "label"] if name == "aachen" else ["label", "w", "v", "u"]
        frame(x, y)[order].to_csv(folder / "shuffled" / f"{name}.csv", index=False)
    whole = pandas.concat([frame(x, y).assign(town=name) for name, (x, y) in found.items()], ignore_index=True)
    whole.to_csv(folder / "all.csv", index=False)
    return {
        "arrays": found,
        "lists": {name: (x.tolist(), y.tolist()) for name, (x, y) in found.items()},
        "float64": {name: (x.astype(np.float64), y * 1.0) for name, (x, y) in found.items()},
        "csv": f"folder:{folder}/csv",
        "csv, columns in another order": f"folder:{folder}/shuffled",
        "parquet": f"folder:{folder}/parquet",
        "npz": f"folder:{folder}/npz",
        "DataFrames": {name: frame(x, y) for name, (x, y) in found.items()},
        "torch": {
            name: torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
            for name, (x, y) in found.items()
        },
        "one csv": f"csv:{folder}/all.csv",
        "one DataFrame": whole,
    }


def test_the_same_numbers_give_the_same_digest(tmp_path: Path) -> None:
    results = {}
    for way, given in ways(tmp_path).items():
        owner: dict[str, Any] = {"client": "town"} if way.startswith("one ") else {}
        results[way] = sparsona.run("fedavg", data=given, rounds=2, training={"epochs": 1, "lr": 0.1}, **owner)
    assert {result.summary["digest"] for result in results.values()} == {results["arrays"].summary["digest"]}
    model = results["csv"].models["bonn"]
    assert set(model.predict(owners()["aachen"][0]).tolist()) == {2, 7}
    assert model.card.schema.classes == ("2", "7")
    indicators = [isinstance(feature, Number) and feature.indicator for feature in model.card.schema.features]
    assert indicators == [False, True, False]
    sent = results["csv"].summary["bytes"]
    assert sent["agreement"]["up"] > 0 < sent["agreement"]["down"]
    rounds = sum(report.up.total for report in results["csv"].history)
    assert sent["up"] == rounds + sent["agreement"]["up"]


def test_scaling_is_part_of_what_is_learnt(tmp_path: Path) -> None:
    """Numbers as they are, own and agreed scaling are three experiments."""
    far = {name: (x * 1000, y) for name, (x, y) in owners().items()}
    scores = {
        scaling: sparsona.run("local", data=far, rounds=5, scaling=scaling).summary["accuracy"]["post"]["mean"]
        for scaling in ("agreed", "own")
    }
    assert min(scores.values()) > 0.7
    near = sparsona.run("local", data=owners(), rounds=5, scaling="own").summary
    alike = sparsona.run("local", data=far, rounds=5, scaling="own").summary
    assert near["accuracy"]["post"]["mean"] == pytest.approx(alike["accuracy"]["post"]["mean"], abs=0.05)


# arrays


def test_arrays_by_client_are_groups() -> None:
    made = from_arrays({"b": (X[:2], Y[:2]), "a": (X[2:], Y[2:])})
    assert np.array_equal(made.inputs, X.astype(np.float32))
    assert made.targets.dtype == np.int64
    assert made.groups is not None
    assert made.groups.tolist() == [0, 0, 1, 1, 1, 1]
    assert (made.group_names, made.classes, made.official_test) == (("b", "a"), 3, 0)


def test_arrays_with_test_parts_stand_at_the_end() -> None:
    made = from_arrays(
        {
            "a": {"train": (X[:2], Y[:2]), "test": (X[2:3], Y[2:3])},
            "b": {"test": (X[5:], Y[5:]), "train": (X[3:5], Y[3:5])},
        },
        name="mine",
        model="logistic",
    )
    assert np.array_equal(made.inputs[:, 0], X[[0, 1, 3, 4, 2, 5], 0].astype(np.float32))
    assert made.groups is not None
    assert made.groups.tolist() == [0, 0, 1, 1, 0, 1]
    assert (made.official_test, made.name, made.model) == (2, "mine", "logistic")


def test_one_pair_has_no_groups() -> None:
    made = from_arrays((X.tolist(), Y.tolist()))
    assert (made.groups, made.group_names, len(made)) == (None, (), 6)


@pytest.mark.parametrize(
    ("x", "columns", "shape", "kind", "inputs"),
    [
        (np.zeros((2, 5, 4), np.uint8), Columns(), (2, 1, 5, 4), "uint8", "images"),
        (np.zeros((2, 3, 5, 4), np.uint8), Columns(), (2, 3, 5, 4), "uint8", "images"),
        (np.zeros((2, 5), np.uint8), Columns(), (2, 5), "float32", "table"),
        (np.zeros((2, 5), bool), Columns(), (2, 5), "float32", "table"),
        (np.full((2, 5), 7), Columns(), (2, 5), "float32", "table"),
        (np.full((2, 5), 7), Columns(inputs="tokens"), (2, 5), "int32", "tokens"),
        (np.zeros((2, 3, 5, 4)), Columns(), (2, 3, 5, 4), "float32", "arrays"),
        (torch.zeros(2, 5, requires_grad=True), Columns(), (2, 5), "float32", "table"),
        (torch.zeros(2, 3, 5, dtype=torch.bfloat16), Columns(), (2, 3, 5), "float32", "arrays"),
    ],
)
def test_inputs_are_what_they_look_like(x: Any, columns: Columns, shape: Any, kind: str, inputs: str) -> None:
    made = from_arrays((x, [0, 1]), columns=columns)
    assert (made.inputs.shape, str(made.inputs.dtype)) == (shape, kind)
    assert made.rows is not None
    assert made.rows.inputs == inputs
    assert made.model == ("text-embedding" if inputs == "tokens" else "mlp")


@pytest.mark.parametrize(
    ("y", "columns", "targets", "classes", "names"),
    [
        ([0.5, 1.5], Columns(), [0.5, 1.5], 0, ()),
        ([1, 2], Columns(task="regression"), [1, 2], 0, ()),
        ([0.5, 1.0], Columns(task="classification"), [0, 1], 2, ("0.5", "1")),
        ([[0.0, 1.0], [1.0, 1.0]], Columns(), [[0, 1], [1, 1]], 0, ()),
        ([[3], [1]], Columns(), [1, 0], 2, ("1", "3")),
        (["dog", "cat"], Columns(), [1, 0], 2, ("cat", "dog")),
        ([10.0, 9.0], Columns(), [1, 0], 2, ("9", "10")),
        ([10, 9], Columns(categorical=("y",)), [0, 1], 2, ("10", "9")),
    ],
)
def test_targets_are_what_they_look_like(y: Any, columns: Columns, targets: Any, classes: int, names: Any) -> None:
    made = from_arrays((X[:2], y), columns=columns)
    assert made.targets.tolist() == targets
    assert made.targets.dtype == (np.int64 if classes else np.float64)
    assert (made.classes, made.class_names) == (classes, names)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "there is no client"),
        ({"a": (X, Y[:3])}, "client 'a': 6 inputs and 3 targets"),
        ({"a": (X[:0], Y[:0])}, "client 'a': no samples"),
        ({"a": X}, "client 'a': give a pair"),
        ({"a": (Y, Y)}, "inputs have shape"),
        ({"a": ([[1.0], [1.0, 2.0]], [0, 1])}, "samples differ in shape"),
        ({"a": (X.astype(object), Y)}, "values of type object"),
        ({"a": (X.astype(complex), Y)}, "client 'a', inputs: values of type complex128 cannot be used"),
        ({"a": (torch.zeros(6, 2, dtype=torch.complex64), Y)}, "client 'a', inputs: values of type complex64"),
        ({1: (X, Y), "1": (X, Y)}, "clients 1 and '1' are both called '1'; give each a name of its own"),
        ({"a": (X.astype(str), Y)}, "inputs are text"),
        ({"a": (X, Y), "b": (X[:, :1], Y)}, "client 'b' has no column 'x1', which client 'a' has"),
        ({"a": (X, Y), "b": (X, Y + 0.5)}, "client 'b', column 'y' holds decimals, client 'a' holds whole numbers"),
        ({"a": (X * 1e300, Y)}, "client 'a', row 1, column 'x0': .* is infinite or beyond float32"),
        ({"a": (X, [np.inf] * 6)}, "client 'a', row 0, column 'y': the target inf is infinite"),
        ({"a": (np.zeros((6, 32, 32, 3), np.uint8), Y)}, "channels last"),
        ({"a": (np.full((6, 2, 2), np.nan), Y)}, "client 'a', row 0: a value is missing"),
        ({"a": {"test": (X, Y)}}, "give 'train' and perhaps 'test'"),
        ({"a": {"train": (X, Y), "valid": (X, Y)}}, "give 'train' and perhaps 'test'"),
        ({"a": {"train": (X, Y), "test": (X, Y)}, "b": (X, Y)}, "give it for all or for none"),
        ({"a": (np.arange(8.0).reshape(8, 1), [0, 1] * 4)}, "column 'x0' only counts the rows"),
    ],
)
def test_wrong_arrays_are_told_in_one_line(given: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        from_arrays(given)
    assert "\n" not in str(caught.value)


DIGITS = np.arange(96).reshape(6, 4, 4) * 2
UNIT = DIGITS[:, None] / 255


@pytest.mark.parametrize("other", [UNIT, UNIT.astype(np.float32), DIGITS])
def test_images_and_arrays_of_another_type_are_never_put_together(other: np.ndarray, tmp_path: Path) -> None:
    """Of uint8 a model sees a 255th."""
    images = DIGITS.astype(np.uint8)
    kinds = {"a": "arrays of another type than uint8", "b": "images of uint8"}
    with pytest.raises(DataError) as caught:
        from_arrays({"a": (other, Y), "b": (images, Y)})
    fix = "give all the same type and the same axes"
    assert str(caught.value) == f"client 'b' has {kinds['b']}, client 'a' has {kinds['a']}; {fix}"
    for name, x in (("a", other), ("b", images)):
        np.savez(tmp_path / f"{name}.npz", x=x, y=Y)
    with pytest.raises(DataError) as caught:
        data.load(f"folder:{tmp_path}")
    assert str(caught.value) == f"{tmp_path}/b.npz has {kinds['b']}, {tmp_path}/a.npz has {kinds['a']}; {fix}"


def test_nor_are_they_in_a_client_and_its_test_part() -> None:
    images = DIGITS[:, None].astype(np.uint8)
    with pytest.raises(DataError) as caught:
        from_arrays({"a": {"train": (images, Y), "test": (UNIT, Y)}})
    assert str(caught.value) == (
        "client 'a': inputs are uint8, those of the test part float64; "
        "give all the same type, since uint8 are images of 0 to 255"
    )


def test_columns_have_no_type_of_their_own() -> None:
    made = from_arrays({"a": (X[:, :1], Y), "b": (np.array([[7], [0], [3], [9], [1], [4]], np.uint8), Y)})
    assert made.inputs[6:, 0].tolist() == [7, 0, 3, 9, 1, 4]


def test_tokens_are_whole_numbers() -> None:
    with pytest.raises(DataError, match="tokens are whole numbers from 0"):
        from_arrays((X, Y), columns=Columns(inputs="tokens"))


# torch


class Squares(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return torch.full((1, 4, 4), float(k)), k % 3


class Stream(torch.utils.data.IterableDataset[tuple[np.ndarray[Any, Any], float]]):
    def __iter__(self) -> Iterator[tuple[np.ndarray[Any, Any], float]]:
        return iter([(np.zeros(3), 0.5), (np.ones(3), 1.5)])


class Endless(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return torch.full((4,), float(k)), k % 3


class Broken(Squares):
    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        if k == 3:
            raise OSError("cut\nfile")
        return super().__getitem__(k)


class BrokenStream(Stream):
    def __iter__(self) -> Iterator[tuple[np.ndarray[Any, Any], float]]:
        yield from super().__iter__()
        raise KeyError("next")


def test_a_torch_dataset_is_read_whole() -> None:
    made = from_torch(Squares())
    assert made.inputs.shape == (5, 1, 4, 4)
    assert made.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert made.targets.tolist() == [0, 1, 2, 0, 1]
    assert made.groups is None
    assert from_torch(Stream()).targets.tolist() == [0.5, 1.5]


def test_torch_datasets_by_client_and_their_tests() -> None:
    made = from_torch({"a": Squares(), "b": Squares()}, {"b": Squares(), "a": Squares()})
    assert (len(made), made.official_test, made.group_names) == (20, 10, ("a", "b"))
    assert made.groups is not None
    assert made.groups.tolist() == [0] * 5 + [1] * 5 + [0] * 5 + [1] * 5
    assert from_torch(Squares(), Squares()).official_test == 5


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (([1, 2, 3],), "not a pair"),
        (([(np.zeros(2), 0), (np.zeros(3), 0)],), r"shapes \(2,\) and \(3,\)"),
        (([],), "give"),
        ((Squares(), {"a": Squares()}), "must both"),
        (({"a": Squares()}, {"b": Squares()}), "client 'a' is in only one"),
        ((Endless(),), "the torch Dataset: the torch Dataset has no length; give it __len__, or make it an Iterable"),
        (
            ({"a": Broken()},),
            r"client 'a': sample 3 of the torch Dataset cannot be read \(OSError: cut file\); correct",
        ),
        ((BrokenStream(),), r"sample 2 of the torch Dataset cannot be read \(KeyError: 'next'\)"),
    ],
)
def test_wrong_torch_datasets_are_told(arguments: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        from_torch(*arguments)
    assert "\n" not in str(caught.value)


# tables


def test_types_of_a_frame_are_understood() -> None:
    given = pandas.DataFrame(
        {
            "count": pandas.array([1, None, 3], "Int64"),
            "smokes": [True, False, True],
            "town": pandas.Categorical(["ulm", "bonn", "ulm"]),
            "day": pandas.to_datetime(["2026-01-03", "2026-01-01", "2026-01-02"]),
            "label": pandas.array(["a", "b", "a"], "string"),
        }
    )
    rows = from_python(given, columns=Columns(drop=("day",))).rows
    assert rows is not None
    assert rows.number_names == ("count", "smokes")
    assert np.array_equal(rows.numbers, np.array([[1, 1], [np.nan, 0], [3, 1]]), equal_nan=True)
    assert rows.categories["town"].tolist() == ["ulm", "bonn", "ulm"]
    assert rows.dropped == {"day": "--drop"}
    with pytest.raises(DataError, match="column 'day' holds dates; pass --drop day, or --split time:day"):
        from_python(given, columns=Columns())


def test_categories_of_a_frame_may_be_missing() -> None:
    wards = pandas.Categorical([1, 2, None] * 20)
    given = {name: pandas.DataFrame({"ward": wards, "label": [0, 1] * 30}) for name in ("a", "b")}
    rows = from_python(given, columns=Columns()).rows
    assert rows is not None
    assert rows.categories["ward"].tolist() == ["1", "2", ""] * 40
    assert rows.numeric == {"ward"}
    result = sparsona.run("local", data=given, rounds=1)
    (feature,) = result.models["a"].card.schema.features[:1]
    assert isinstance(feature, Category)
    assert feature.values == ("1", "2")
    assert len(result.models["a"].predict(given["a"][:3])) == 3


@pytest.mark.parametrize("declared", [(), ("day",)])
def test_categories_of_a_frame_may_be_dates(declared: tuple[str, ...], tmp_path: Path) -> None:
    days = pandas.Series(np.array(["2026-01-03", "2026-01-01T12:30", "NaT"] * 20, "M8[us]"))
    frame = pandas.DataFrame({"day": days if declared else days.astype("category"), "label": [0, 1] * 30})
    (tmp_path / "b").mkdir()
    frame.to_parquet(tmp_path / "b" / "b.parquet")
    stored = data.load(f"folder:{tmp_path / 'b'}", columns=Columns(categorical=("day",)))
    for made in (from_python(frame, columns=Columns(categorical=declared)), stored):
        assert made.rows is not None
        assert made.rows.categories["day"].tolist() == ["2026-01-03", "2026-01-01T12:30:00", ""] * 20
        assert made.rows.numeric == frozenset()
    model = sparsona.run("local", data={"a": frame, "b": frame}, rounds=1, categorical=declared).models["a"]
    (feature,) = model.card.schema.features[:1]
    assert isinstance(feature, Category)
    assert feature.values == ("2026-01-01T12:30:00", "2026-01-03")
    told = {"day": ["2026-01-03", "2026-01-01T12:30:00", ""]}
    for same in (frame[:3], {"day": days[:3].to_numpy()}):
        assert np.array_equal(model.probabilities(same), model.probabilities(told))


def test_types_of_a_parquet_file_are_understood(tmp_path: Path) -> None:
    given = pandas.DataFrame(
        {
            "count": pandas.array([1, None, 3], "Int64"),
            "smokes": [True, False, None],
            "town": pandas.Categorical(["ulm", "bonn", None]),
            "label": ["a", "b", "a"],
        }
    )
    given.iloc[[2, 0, 1]].to_parquet(tmp_path / "one.parquet")  # with an index, which is no column
    rows = data.load(f"parquet:{tmp_path}/one.parquet").rows
    assert rows is not None
    assert rows.order == ("count", "smokes", "town")
    assert np.array_equal(rows.numbers, np.array([[3, np.nan], [1, 1], [np.nan, 0]]), equal_nan=True)
    assert rows.categories["town"].tolist() == ["", "ulm", "bonn"]
    (tmp_path / "bad.parquet").write_text("hello")
    with pytest.raises(DataError, match=r"bad.parquet is not a parquet file, or it is damaged; write it anew"):
        data.load(f"parquet:{tmp_path}/bad.parquet")


def test_a_data_set_of_hugging_face_calls_classes_by_name() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"x": datasets.Value("float32"), "label": datasets.ClassLabel(names=["no", "yes"])})
    given = datasets.Dataset.from_dict({"x": [0.5, 1.5, 4.0], "label": [1, 0, 1]}, features=features)
    made = from_python(given, columns=Columns())
    assert made.class_names == ("no", "yes")
    assert made.targets.tolist() == [1, 0, 1]


# npz


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return f"npz:{path}"


def test_npz_with_a_test_part(tmp_path: Path) -> None:
    loaded = data.load(save(tmp_path / "mine.npz", x=X, y=Y, x_test=X[:2], y_test=Y[:2]))
    assert (loaded.name, len(loaded), loaded.official_test, loaded.classes) == ("mine", 8, 2, 3)
    assert loaded.groups is None


def test_npz_with_clients(tmp_path: Path) -> None:
    towns = np.array(["ulm", "bonn", "ulm", "ulm", "bonn", "köln"])
    loaded = data.load(save(tmp_path / "a:b.npz", x=X, y=Y, client=towns))  # a path may hold colons
    assert loaded.group_names == ("bonn", "köln", "ulm")
    assert loaded.groups is not None
    assert loaded.groups.tolist() == [2, 0, 2, 2, 0, 1]
    tests = {"x_test": X[:2], "y_test": Y[:2]}
    loaded = data.load(save(tmp_path / "b.npz", x=X, y=Y, client=[7, 7, 3, 3, 3, 3], **tests))
    assert loaded.groups is not None
    assert loaded.groups.tolist() == [1, 1, 0, 0, 0, 0, -1, -1]
    assert loaded.group_names == ("3", "7")
    loaded = data.load(save(tmp_path / "c.npz", x=X, y=Y, client=[7] * 6, **tests, client_test=[7, 3]))
    assert loaded.groups is not None
    assert loaded.groups.tolist() == [1] * 7 + [0]


def test_npz_with_names_and_a_column_to_split_by(tmp_path: Path) -> None:
    spec = save(tmp_path / "a.npz", x=X, y=Y, columns=["u", "v"], session=[1, 1, 2, 2, 3, 3])
    loaded = data.load(spec, along=along_of("group:session"))
    assert loaded.rows is not None
    assert loaded.rows.order == ("u", "v")
    assert loaded.rows.along is not None
    assert loaded.rows.along.tolist() == ["1", "1", "2", "2", "3", "3"]


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x": X}, "has no array 'y'"),
        ({"x": X, "y": Y, "labels": Y}, "holds 'labels', which is neither x nor y"),
        ({"x": X, "y": Y, "x_test": X}, "only one of x_test and y_test"),
        ({"x": X, "y": Y[:2]}, "6 inputs and 2 targets"),
        ({"x": X, "y": Y, "client": ["a"]}, r"client has shape \(1,\)"),
        ({"x": X, "y": Y, "columns": ["u"]}, "1 names of columns for 2 columns"),
        ({"x": X, "y": Y, "x_test": X[:, :1], "y_test": Y}, "give all the same shape"),
        ({"x": X, "y": np.array([0, "a", None, 1, 2, 3], object)}, "holds Python objects"),
    ],
)
def test_a_wrong_npz_is_told(tmp_path: Path, arrays: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        data.load(save(tmp_path / "mine.npz", **arrays))


def test_what_is_no_npz_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        data.load(f"npz:{tmp_path}/none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DataError, match=r"not a .npz file"):
        data.load(f"npz:{tmp_path}/text.npz")
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(DataError, match=r"not a .npz file"):
        data.load(f"npz:{tmp_path}/one.npy")
    save(tmp_path / "cut.npz", x=X, y=Y)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-50])
    with pytest.raises(DataError, match="damaged"):
        data.load(f"npz:{tmp_path}/cut.npz")
    with pytest.raises(DataError, match="is not a regular file"):
        data.load(f"npz:{tmp_path}")
    with pytest.raises(InputError, match="write npz:PATH"):
        data.load("npz")
