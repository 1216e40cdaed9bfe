"""Images: idx files (MNIST and its kin), CIFAR's binary batches, LEAF's json."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparsona import data
from sparsona.data import cifar
from sparsona.data.dataset import Array
from sparsona.errors import DataError, InputError

RNG = np.random.default_rng(0)


def idx(values: Array) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_mnist(folder: Path, zipped: bool = True) -> tuple[Array, Array]:
    folder.mkdir(parents=True)
    x = RNG.integers(0, 256, (7, 28, 28), np.uint8)
    y = np.array([0, 1, 2, 3, 9, 5, 6], np.uint8)
    parts = {
        "train-images-idx3-ubyte": x[:5],
        "train-labels-idx1-ubyte": y[:5],
        "t10k-images-idx3-ubyte": x[5:],
        "t10k-labels-idx1-ubyte": y[5:],
    }
    for name, values in parts.items():
        content = idx(values)
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)
    return x, y


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_reads_idx_files_zipped_or_not(tmp_path: Path, name: str, zipped: bool) -> None:
    x, y = write_mnist(tmp_path / name, zipped)
    loaded = data.load(name, tmp_path)
    assert np.array_equal(loaded.inputs, x[:, None])
    assert np.array_equal(loaded.targets, y)
    assert loaded.targets.dtype == np.int64
    assert (loaded.official_test, loaded.classes, loaded.name) == (2, 10, name)
    assert loaded.inputs.flags.writeable  # torch warns of arrays that are not


def test_a_truncated_gz_file_names_itself_and_the_fix(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is damaged.*sparsona data get mnist") as caught:
        data.load("mnist", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x1f\x8b" + bytes(60), "is damaged"),
        (b"<html>404</html>" * 20, "not an idx file"),
        (b"", "not an idx file"),
        (idx(np.zeros((5, 4), np.uint8)), "not an idx file"),
        (idx(np.zeros((5, 28, 28), np.uint8))[:-9], "its header says 3920"),
        (idx(np.zeros((4, 28, 28), np.uint8)), "5 labels for the 4 images"),
    ],
)
def test_a_wrong_idx_file_is_told(tmp_path: Path, content: bytes, problem: str) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(DataError, match=problem):
        data.load("mnist", tmp_path)


def test_a_flipped_bit_is_told(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz is damaged"):
        data.load("mnist", tmp_path)


def test_a_label_out_of_range_is_told(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(np.array([3, 10], np.uint8)))
    with pytest.raises(DataError, match="labels are not 0 to 9"):
        data.load("mnist", tmp_path)


def test_test_images_of_another_size_are_told(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(idx(np.zeros((2, 14, 14), np.uint8)))
    with pytest.raises(DataError, match=r"t10k-images.*images are \(14, 14\)"):
        data.load("mnist", tmp_path)


def write_emnist(folder: Path, split: str, labels: Array) -> Array:
    folder.mkdir(parents=True)
    x = RNG.integers(0, 256, (len(labels), 28, 28), np.uint8)
    for part, rows in (("train", slice(0, -1)), ("test", slice(-1, None))):
        stem = f"emnist-{split}-{part}"
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(x[rows])))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels[rows])))
    return x


@pytest.mark.parametrize(
    ("spec", "split", "last", "classes", "first"),
    [
        ("emnist", "balanced", "t", 47, 0),
        ("emnist:byclass", "byclass", "z", 62, 0),
        ("emnist:letters", "letters", "z", 26, 1),
    ],
)
def test_emnist_stands_upright_and_counts_from_0(
    tmp_path: Path, spec: str, split: str, last: str, classes: int, first: int
) -> None:
    labels = np.array([first, first + 1, classes - 1 + first], np.uint8)
    x = write_emnist(tmp_path / "emnist" / "gzip", split, labels)
    loaded = data.load(spec, tmp_path)
    assert np.array_equal(loaded.inputs[:, 0], x.transpose(0, 2, 1))
    assert loaded.targets.tolist() == [0, 1, classes - 1]
    assert loaded.classes == len(loaded.class_names) == classes
    assert loaded.class_names[-1] == last
    assert loaded.official_test == 1


def test_an_unknown_split_is_told() -> None:
    with pytest.raises(InputError, match="no split 'leters'; did you mean 'letters'"):
        data.load("emnist:leters")


def write_batch(path: Path, labels: Array) -> Array:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, (len(labels), 3072), np.uint8)
    path.write_bytes(np.concatenate([labels, pixels], axis=1).astype(np.uint8).tobytes())
    return pixels.reshape(-1, 3, 32, 32)


@pytest.fixture
def small_cifar_10(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "RECORDS", {"train": 10, "test": 2})


@pytest.fixture
def small_cifar_100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "RECORDS", {"train": 3, "test": 2})


@pytest.mark.usefixtures("small_cifar_10")
@pytest.mark.parametrize("sub", ["cifar-10-batches-bin", "."])
def test_cifar_10_reads_the_binary_batches(tmp_path: Path, sub: str) -> None:
    labels = np.array([[[k], [9 - k]] for k in range(6)])
    names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    images = [write_batch(tmp_path / "cifar-10" / sub / n, y) for n, y in zip(names, labels, strict=True)]
    loaded = data.load("cifar-10", tmp_path)
    assert np.array_equal(loaded.inputs, np.concatenate(images))
    assert loaded.targets.tolist() == labels.ravel().tolist()
    assert loaded.official_test == 2
    assert loaded.class_names[3] == "cat"


@pytest.mark.usefixtures("small_cifar_100")
def test_cifar_100_takes_the_fine_labels(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100" / "cifar-100-binary"
    train = write_batch(folder / "train.bin", np.array([[19, 99], [0, 1], [3, 40]]))
    test = write_batch(folder / "test.bin", np.array([[19, 98], [0, 7]]))
    (folder / "fine_label_names.txt").write_text("apple\naquarium_fish\n")
    loaded = data.load("cifar-100", tmp_path)
    assert np.array_equal(loaded.inputs, np.concatenate([train, test]))
    assert loaded.targets.tolist() == [99, 1, 40, 98, 7]
    assert (loaded.official_test, loaded.classes) == (2, 100)
    assert loaded.class_names == ("apple", "aquarium_fish")


@pytest.mark.usefixtures("small_cifar_10")
def test_a_batch_of_another_size_or_label_is_told(tmp_path: Path) -> None:
    for k in range(1, 6):
        write_batch(tmp_path / "cifar-10" / f"data_batch_{k}.bin", np.array([[0], [1]]))
    write_batch(tmp_path / "cifar-10" / "test_batch.bin", np.array([[0]]))
    with pytest.raises(DataError, match=r"test_batch.bin is damaged \(3073 bytes, 2 records are 6146\)"):
        data.load("cifar-10", tmp_path)
    write_batch(tmp_path / "cifar-10" / "test_batch.bin", np.array([[0], [10]]))
    with pytest.raises(DataError, match="a label is above 9"):
        data.load("cifar-10", tmp_path)


def leaf(users: dict[str, list[int]]) -> tuple[dict[str, Any], Array]:
    pixels = {u: RNG.integers(0, 256, (len(y), 784), np.uint8) for u, y in users.items()}
    content = {
        "users": list(users),
        "num_samples": [len(y) for y in users.values()],
        "user_data": {u: {"x": (pixels[u] / 255).tolist(), "y": y} for u, y in users.items()},
    }
    return content, np.concatenate(list(pixels.values()))


@pytest.mark.parametrize("sub", ["all_data", "."])
def test_femnist_groups_by_writer_and_keeps_the_pixels(tmp_path: Path, sub: str) -> None:
    folder = tmp_path / "femnist" / sub
    folder.mkdir(parents=True)
    first, x_first = leaf({"f0001_41": [0, 61], "f0002_00": [10]})
    second, x_second = leaf({"f0003_01": [36, 36, 5]})
    (folder / "all_data_0.json").write_text(json.dumps(first))
    (folder / "all_data_1.json").write_text(json.dumps(second))
    for _ in range(2):  # the second time from the cache
        loaded = data.load("femnist", tmp_path)
        assert np.array_equal(loaded.inputs.reshape(-1, 784), np.concatenate([x_first, x_second]))
        assert loaded.inputs.shape[1:] == (1, 28, 28)
        assert loaded.targets.tolist() == [0, 61, 10, 36, 36, 5]
        assert loaded.groups is not None
        assert loaded.groups.tolist() == [0, 0, 1, 2, 2, 2]
        assert loaded.group_names == ("f0001_41", "f0002_00", "f0003_01")
        assert loaded.class_names[36] == "a"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"users": ["a"], "user_data": {}}',
        '{"users": [], "user_data": {}}',
        '{"users": ["a"], "user_data": {"a": {"x": [[0, 1]], "y": [0]}}}',
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0] * 784], "y": [0, 1]}}}),
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0] * 784], "y": [62]}}}),
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [[255] * 784], "y": [0]}}}),
    ],
)
def test_a_wrong_leaf_file_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "all_data_0.json").write_text(content)
    with pytest.raises(DataError, match=r"all_data_0\.json is damaged") as caught:
        data.load("femnist", tmp_path)
    assert "\n" not in str(caught.value)


def _photos(folder: Path, size: int = 6) -> Path:
    rng = np.random.default_rng(0)
    for client in ("east", "west"):
        for kind in ("cat", "dog"):
            (folder / client / kind).mkdir(parents=True)
            for number in range(6):
                picture = rng.integers(0, 255, (size, size, 3)).astype(np.uint8)
                Image.fromarray(picture).save(folder / client / kind / f"{number}.png")
    return folder


def test_folders_of_images_are_clients_and_classes(tmp_path: Path) -> None:
    made = data.load(f"images:{_photos(tmp_path / 'photos')}")
    assert (made.inputs.shape, str(made.inputs.dtype)) == ((24, 3, 6, 6), "uint8")
    assert (made.group_names, made.class_names) == (("east", "west"), ("cat", "dog"))


def test_images_that_do_not_fit_are_named(tmp_path: Path) -> None:
    photos = _photos(tmp_path / "photos")
    Image.fromarray(np.zeros((7, 6), np.uint8)).save(photos / "west" / "cat" / "odd.png")
    with pytest.raises(DataError, match=r"odd.png .*6 x 6 and 6 x 7"):
        data.load(f"images:{photos}")
    (photos / "west" / "cat" / "odd.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="cannot be read as an image"):
        data.load(f"images:{photos}")
    (photos / "notes.txt").write_text("")
    with pytest.raises(DataError, match="no folder"):
        data.load(f"images:{photos}")
