"""CIFAR-100: 60,000 colour photographs in 100 fine classes (Krizhevsky, 2009), read from the binary files."""

import numpy as np

from sparsona.data._cifar import MEAN, STD, read_batches
from sparsona.data._source import File, source
from sparsona.data._store import Store
from sparsona.data.dataset import Dataset

TRAIN_RECORDS, TEST_RECORDS = 50_000, 10_000
TRAIN, TEST = "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"
NAMES = "cifar-100-binary/fine_label_names.txt"


@source(
    about="60,000 colour photographs, 32x32 pixels, 100 classes",
    licence="none stated; cite Krizhevsky (2009)",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(
        File(
            "cifar-100-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            md5="03b5dce01913d631647c71ecec9e9cb8",
            size=168513733,
            members=(TRAIN, TEST, NAMES),
        ),
    ),
)
def load(store: Store) -> Dataset:
    """Fine labels; the list of their names is used where it lies beside the batches."""
    inputs, targets = read_batches(store, (TRAIN,), TRAIN_RECORDS, label_bytes=2, classes=100)
    x_test, y_test = read_batches(store, (TEST,), TEST_RECORDS, label_bytes=2, classes=100)
    names = store.find(NAMES)
    return Dataset(
        name="cifar-100",
        inputs=np.concatenate([inputs, x_test]),
        targets=np.concatenate([targets, y_test]),
        classes=100,
        official_test=len(y_test),
        mean=MEAN,
        std=STD,
        class_names=tuple(store.read(names).decode().split()) if names else (),
        model="cnn-cifar100",
    )
