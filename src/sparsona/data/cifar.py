"""CIFAR-10 and CIFAR-100: 60,000 colour photographs (Krizhevsky, 2009), read from the binary batches.

A record of a batch is its label bytes, then the red, the green and the blue plane.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparsona.data._store import File, Store, source
from sparsona.data.dataset import Array, Dataset

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
PIXELS = 3 * 32 * 32
RECORDS = {"train": 50_000, "test": 10_000}
BATCHES = tuple(f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, 6))
TEST = "cifar-10-batches-bin/test_batch.bin"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN_100, TEST_100 = "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"
NAMES_100 = "cifar-100-binary/fine_label_names.txt"
CITED = "none stated; cite Krizhevsky (2009)"
HOMEPAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


def _archive(name: str, md5: str, size: int, members: tuple[str, ...]) -> tuple[File, ...]:
    return (File(name, (f"https://www.cs.toronto.edu/~kriz/{name}",), md5=md5, size=size, members=members),)


@source(
    "cifar-10",
    about="60,000 colour photographs, 32x32 pixels, 10 classes",
    licence=CITED,
    homepage=HOMEPAGE,
    files=_archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170052171, (*BATCHES, TEST)),
)
def cifar_10(store: Store) -> Dataset:
    """CIFAR-10, from the publisher's files."""
    return _dataset(store, "cifar-10", BATCHES, TEST, 10, NAMES, "lenet-cifar")


@source(
    "cifar-100",
    about="60,000 colour photographs, 32x32 pixels, 100 classes",
    licence=CITED,
    homepage=HOMEPAGE,
    files=_archive(
        "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168513733, (TRAIN_100, TEST_100, NAMES_100)
    ),
)
def cifar_100(store: Store) -> Dataset:
    """Fine labels; the list of their names is used where it lies beside the batches."""
    names = store.find(NAMES_100)
    called = tuple(store.read(names).decode().split()) if names else ()
    return _dataset(store, "cifar-100", (TRAIN_100,), TEST_100, 100, called, "cnn-cifar100")


def _dataset(
    store: Store, name: str, train: Sequence[str], test: str, classes: int, names: tuple[str, ...], model: str
) -> Dataset:
    """Read images (n, 3, 32, 32) and the last label byte of each record, the fine label of CIFAR-100."""
    label_bytes, each = 1 if classes == 10 else 2, RECORDS["train"] // len(train)
    batches = [_batch(store, store.need(file), each, label_bytes, classes) for file in train]
    whole = np.concatenate([*batches, _batch(store, store.need(test), RECORDS["test"], label_bytes, classes)])
    return Dataset(
        name=name,
        inputs=np.ascontiguousarray(whole[:, label_bytes:]).reshape(-1, 3, 32, 32),
        targets=whole[:, label_bytes - 1].astype(np.int64),
        classes=classes,
        official_test=RECORDS["test"],
        mean=MEAN,
        std=STD,
        class_names=names,
        model=model,
    )


def _batch(store: Store, path: Path, records: int, label_bytes: int, classes: int) -> Array:
    data = np.frombuffer(store.read(path), np.uint8)
    width = label_bytes + PIXELS
    if data.size != records * width:
        raise store.damaged(path, f"{data.size} bytes, {records} records are {records * width}")
    batch = data.reshape(records, width)
    if batch[:, label_bytes - 1].max() >= classes:
        raise store.damaged(path, f"a label is above {classes - 1}")
    return batch
