"""The user's own data: npz, a folder, arrays, torch Datasets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

from sparsona import data
from sparsona.data import from_arrays, from_torch
from sparsona.errors import DataError, InputError

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return f"npz:{path}"


# arrays


def test_arrays_by_client_are_groups() -> None:
    made = from_arrays({"b": (X[:2], Y[:2]), "a": (X[2:], Y[2:])})
    assert np.array_equal(made.inputs, X)
    assert made.inputs.dtype == np.float32
    assert made.targets.dtype == np.int64
    assert made.groups is not None
    assert made.groups.tolist() == [0, 0, 1, 1, 1, 1]
    assert (made.group_names, made.classes, made.official_test) == (("b", "a"), 3, 0)
    assert (made.mean, made.std) == ((), ())


def test_arrays_with_test_parts_stand_at_the_end() -> None:
    made = from_arrays(
        {
            "a": {"train": (X[:2], Y[:2]), "test": (X[2:3], Y[2:3])},
            "b": {"test": (X[5:], Y[5:]), "train": (X[3:5], Y[3:5])},
        },
        name="mine",
        model="logistic",
        standardise=True,
    )
    assert made.inputs[:, 0].tolist() == [0, 2, 6, 8, 4, 10]
    assert made.groups is not None
    assert made.groups.tolist() == [0, 0, 1, 1, 0, 1]
    assert made.official_test == 2
    assert (made.name, made.model) == ("mine", "logistic")
    assert made.mean == (4.0, 5.0)  # of the training part only


def test_one_pair_has_no_groups() -> None:
    made = from_arrays((X.tolist(), Y.tolist()))
    assert made.groups is None
    assert made.group_names == ()
    assert len(made) == 6


@pytest.mark.parametrize(
    ("x", "y", "shape", "kind", "classes", "vocabulary"),
    [
        (np.zeros((2, 5, 4), np.uint8), [0, 1], (2, 1, 5, 4), "uint8", 2, 0),
        (np.zeros((2, 3, 5, 4), np.uint8), [0, 1], (2, 3, 5, 4), "uint8", 2, 0),
        (np.zeros((2, 5), np.uint8), [0, 1], (2, 5), "float32", 2, 0),
        (np.zeros((2, 5), bool), [True, False], (2, 5), "float32", 2, 0),
        (np.full((2, 5), 7), [0, 3], (2, 5), "int32", 4, 8),
        (np.zeros((2, 3, 5, 4)), [0, 1], (2, 3, 5, 4), "float32", 2, 0),
        (torch.zeros(2, 5, requires_grad=True), torch.tensor([0, 1]), (2, 5), "float32", 2, 0),
    ],
)
def test_inputs_follow_the_rules_of_the_dataset(
    x: Any, y: Any, shape: tuple[int, ...], kind: str, classes: int, vocabulary: int
) -> None:
    made = from_arrays((x, y))
    assert made.inputs.shape == shape
    assert made.inputs.dtype == kind
    assert (made.classes, made.vocabulary) == (classes, vocabulary)
    assert made.model == ("text-embedding" if vocabulary else "mlp")


@pytest.mark.parametrize(
    ("y", "targets", "classes", "names"),
    [
        ([0.5, 1.0], [0.5, 1.0], 0, ()),
        ([[0.0, 1.0], [1.0, 1.0]], [[0, 1], [1, 1]], 0, ()),
        ([[0, 1], [1, 1]], [[0, 1], [1, 1]], 0, ()),
        ([[3], [1]], [3, 1], 4, ()),
        (["dog", "cat"], [1, 0], 2, ("cat", "dog")),
    ],
)
def test_targets_follow_the_rules_of_the_dataset(y: Any, targets: Any, classes: int, names: tuple[str, ...]) -> None:
    made = from_arrays((X[:2], y))
    assert made.targets.tolist() == targets
    assert made.targets.dtype == (np.int64 if classes else np.float32)
    assert (made.classes, made.class_names) == (classes, names)


def test_unknown_labels_and_missing_values_stay_so() -> None:
    made = from_arrays(([[np.nan, 1.0], [2.0, 3.0]], [np.nan, 1.0]), standardise=True)
    assert np.isnan(made.targets[0])
    assert made.has_missing
    assert made.mean == (2.0, 2.0)
    assert made.std == (1.0, 1.0)


def test_texts_are_numbered_over_all_clients() -> None:
    made = from_arrays({"a": (X[:2], ["cat", "cat"]), "b": (X[:2], ["ant", "dog"])})
    assert made.targets.tolist() == [1, 1, 0, 2]
    assert made.class_names == ("ant", "cat", "dog")


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
        ({"a": (X.astype(str), Y)}, "inputs are text"),
        ({"a": (X, Y), "b": (X[:, :1], Y)}, r"client 'b' has inputs of shape \(1,\), the first \(2,\)"),
        ({"a": (X, Y), "b": (X, Y * 1.0)}, "client 'b' has targets that are decimals, the first whole numbers"),
        ({"a": (X, Y), "b": (X.astype(np.int64), Y)}, "client 'b' has inputs that are whole numbers"),
        ({"a": (X, Y - 1)}, "class -1 is negative; number the classes from 0"),
        ({"a": (X * 1e300, Y)}, "an input is infinite"),
        ({"a": (X, [np.inf] * 6)}, "a target is infinite"),
        ({"a": (-X.astype(np.int64), Y)}, "give floats for a table"),
        ({"a": (np.zeros((6, 32, 32, 3), np.uint8), Y)}, "channels last"),
        ({"a": {"test": (X, Y)}}, "give 'train' and perhaps 'test'"),
        ({"a": {"train": (X, Y), "valid": (X, Y)}}, "give 'train' and perhaps 'test'"),
        ({"a": {"train": (X, Y), "test": (X, Y)}, "b": (X, Y)}, "give it for all or for none"),
    ],
)
def test_wrong_arrays_are_told_in_one_line(given: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        from_arrays(given)
    assert "\n" not in str(caught.value)


# torch


class Squares(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return torch.full((1, 4, 4), float(k)), k % 3


class Stream(torch.utils.data.IterableDataset[tuple[np.ndarray[Any, Any], float]]):
    def __iter__(self) -> Iterator[tuple[np.ndarray[Any, Any], float]]:
        return iter([(np.zeros(3), 0.5), (np.ones(3), 1.5)])


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
    ],
)
def test_wrong_torch_datasets_are_told(arguments: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        from_torch(*arguments)


# npz


def test_npz_with_a_test_part(tmp_path: Path) -> None:
    loaded = data.load(save(tmp_path / "mine.npz", x=X, y=Y, x_test=X[:2], y_test=Y[:2]))
    assert (loaded.name, len(loaded), loaded.official_test, loaded.classes) == ("mine", 8, 2, 3)
    assert loaded.groups is None


def test_npz_with_clients(tmp_path: Path) -> None:
    owners = np.array(["ulm", "bonn", "ulm", "ulm", "bonn", "köln"])
    spec = save(tmp_path / "a:b.npz", x=X, y=Y, client=owners)  # a path may hold colons
    loaded = data.load(spec)
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


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x": X}, "has no array 'y'"),
        ({"x": X, "y": Y, "labels": Y}, "holds 'labels'; rename it"),
        ({"x": X, "y": Y, "x_test": X}, "only one of x_test and y_test"),
        ({"x": X, "y": Y[:2]}, "6 inputs and 2 targets"),
        ({"x": X, "y": Y, "client": ["a"]}, r"client has shape \(1,\)"),
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
    with pytest.raises(DataError, match="cannot read"):
        data.load(f"npz:{tmp_path}")
    with pytest.raises(InputError, match="write npz:PATH"):
        data.load("npz")


# a folder


def write(folder: Path, **files: str) -> str:
    for stem, text in files.items():
        (folder / f"{stem}.csv").write_text(text, encoding="utf-8")
    return f"folder:{folder}"


def test_a_folder_of_csv_files(tmp_path: Path) -> None:
    spec = write(
        tmp_path,
        zurich="age,label,weight\n30,1,70.5\n40,0,\n",
        basel="\ufeffweight,age,label\n60,NA,2\n\n80,?,0\n",
    )
    (tmp_path / "notes.txt").write_text("not a client")
    (tmp_path / ".hidden.csv").write_text("not a client")
    loaded = data.load(spec)
    assert loaded.group_names == ("basel", "zurich")
    assert loaded.groups is not None
    assert loaded.groups.tolist() == [0, 0, 1, 1]
    expected = [[60, np.nan], [80, np.nan], [70.5, 30], [np.nan, 40]]  # the columns of basel
    assert np.array_equal(loaded.inputs, expected, equal_nan=True)
    assert loaded.targets.tolist() == [2, 0, 1, 0]
    assert (loaded.classes, loaded.has_missing, loaded.name) == (3, True, tmp_path.name)
    assert np.allclose(loaded.mean, (70.1667, 35))
    assert np.allclose(loaded.std, (8.1684, 5), atol=1e-3)


@pytest.mark.parametrize(
    ("labels", "targets", "classes", "names"),
    [
        (("1", "0", "3"), [1, 0, 3], 4, ()),
        (("0.5", "1", "-2"), [0.5, 1, -2], 0, ()),
        (("ill", "well", "ill"), [0, 1, 0], 2, ("ill", "well")),
        (("1", "2", "two"), [0, 1, 2], 3, ("1", "2", "two")),
    ],
)
def test_the_last_column_is_the_target(
    tmp_path: Path, labels: tuple[str, str, str], targets: list[float], classes: int, names: tuple[str, ...]
) -> None:
    a, b, c = labels
    loaded = data.load(write(tmp_path, one=f"u,v,outcome\n1,2,{a}\n3,4,{b}\n", two=f"u,v,outcome\n5,6,{c}\n"))
    assert loaded.targets.tolist() == targets
    assert (loaded.classes, loaded.class_names) == (classes, names)
    assert loaded.inputs.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_folder_of_npz_files_and_a_mixed_one(tmp_path: Path) -> None:
    save(tmp_path / "b.npz", x=X, y=Y, x_test=X[:1], y_test=Y[:1])
    save(tmp_path / "a.npz", x=X, y=Y, x_test=X[:2], y_test=Y[:2])
    loaded = data.load(f"folder:{tmp_path}")
    assert (len(loaded), loaded.official_test, loaded.group_names) == (15, 3, ("a", "b"))
    assert loaded.mean == ()
    (tmp_path / "a.npz").unlink()
    save(tmp_path / "b.npz", x=X, y=Y)
    loaded = data.load(write(tmp_path, c="u,v,y\n1,2,0\n"))
    assert (len(loaded), loaded.group_names) == (7, ("b", "c"))


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "no .npz and no .csv"),
        ({"a": "u,v,y\n1,2,0\n", "b": "u,w,y\n1,2,0\n"}, "a.csv has a column 'v', .*b.csv has not"),
        ({"a": "u,v,y\n1,2,0\n", "b": "u,v,x,y\n1,2,3,0\n"}, "b.csv has a column 'x', .*a.csv has not"),
        ({"a": "u,v,y\n1,2,0\n", "b": "u,y,v,label\n1,2,3,0\n"}, "b.csv has the target 'label', a.csv has 'y'"),
        ({"a": "u,y\n1,0\nred,1\n"}, "a.csv, line 3: u is 'red'"),
        ({"a": "u,y\n1,0\n1,\n"}, "a.csv, line 3: no y"),
        ({"a": "u,y\n1,0\n1\n"}, "a.csv, line 3: 1 cells for 2 columns"),
        ({"a": "u,u,y\n1,0,1\n"}, "two columns 'u'"),
        ({"a": "u;y\n1;0\n"}, "only one column; .*by commas"),
        ({"a": "u,y\n"}, "holds no rows"),
        ({"a": ""}, "holds no rows"),
        ({"a": "u,y\ninf,1\n"}, "an input is infinite"),
    ],
)
def test_a_wrong_folder_is_told(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        data.load(write(tmp_path, **files))
    assert "\n" not in str(caught.value)


def test_other_wrong_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the folder .*: No such file"):
        data.load(f"folder:{tmp_path}/none")
    (tmp_path / "a.csv").write_bytes(b"u,y\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="not a csv file in UTF-8"):
        data.load(f"folder:{tmp_path}")
    write(tmp_path, a="u,v,y\n1,2,0\n")
    save(tmp_path / "a.npz", x=X, y=Y)
    with pytest.raises(DataError, match="name the same client"):
        data.load(f"folder:{tmp_path}")
    (tmp_path / "a.csv").unlink()
    save(tmp_path / "b.npz", x=X[:, :1], y=Y)
    with pytest.raises(DataError, match="client 'b' has inputs of shape"):
        data.load(f"folder:{tmp_path}")
