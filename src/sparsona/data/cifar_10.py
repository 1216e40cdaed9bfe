"""CIFAR-10: 60,000 colour photographs in 10 classes (Krizhevsky, 2009), read from the binary batches."""

import numpy as np

from sparsona.data._cifar import MEAN, STD, read_batches
from sparsona.data._source import File, source
from sparsona.data._store import Store
from sparsona.data.dataset import Dataset

RECORDS = 10_000
TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, 6))
TEST = ("cifar-10-batches-bin/test_batch.bin",)
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@source(
    about="60,000 colour photographs, 32x32 pixels, 10 classes",
    licence="none stated; cite Krizhevsky (2009)",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(
        File(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            size=170052171,
            members=TRAIN + TEST,
        ),
    ),
)
def load(store: Store) -> Dataset:
    """CIFAR-10, from the publisher's files."""
    inputs, targets = read_batches(store, TRAIN + TEST, RECORDS, label_bytes=1, classes=10)
    return Dataset(
        name="cifar-10",
        inputs=np.ascontiguousarray(inputs),
        targets=targets,
        classes=10,
        official_test=RECORDS * len(TEST),
        mean=MEAN,
        std=STD,
        class_names=NAMES,
        model="lenet-cifar",
    )
