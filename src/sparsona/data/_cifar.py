"""The binary batches of CIFAR: a record is its label bytes, then the red, the green and the blue plane."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparsona.data._store import Store
from sparsona.data.dataset import Array

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
PIXELS = 3 * 32 * 32


def read_batches(
    store: Store, names: Sequence[str], records: int, label_bytes: int, classes: int
) -> tuple[Array, Array]:
    """Return images (n, 3, 32, 32) and the last label byte of each record, the fine label of CIFAR-100."""
    batches = [_batch(store, store.need(name), records, label_bytes, classes) for name in names]
    whole = np.concatenate(batches)
    return whole[:, label_bytes:].reshape(-1, 3, 32, 32), whole[:, label_bytes - 1].astype(np.int64)


def _batch(store: Store, path: Path, records: int, label_bytes: int, classes: int) -> Array:
    data = np.frombuffer(store.read(path), np.uint8)
    width = label_bytes + PIXELS
    if data.size != records * width:
        raise store.damaged(path, f"{data.size} bytes, {records} records are {records * width}")
    batch = data.reshape(records, width)
    if batch[:, label_bytes - 1].max() >= classes:
        raise store.damaged(path, f"a label is above {classes - 1}")
    return batch
