"""The idx format of MNIST and its kin: a magic number, the size of each dimension, the values."""

import math
from pathlib import Path

import numpy as np

from sparsona.data._source import File
from sparsona.data._store import Store
from sparsona.data.dataset import Array

UNSIGNED_BYTE = 8


def idx_files(urls: tuple[str, ...], known: dict[str, tuple[str, int]]) -> tuple[File, ...]:
    """Return the published files below `urls`; `known` maps names to (sha256, size)."""
    return tuple(
        File(name, tuple(url + name for url in urls), sha256=sha256, size=size)
        for name, (sha256, size) in known.items()
    )


def read_idx(store: Store, path: Path, dimensions: int) -> Array:
    """Return the array of unsigned bytes in an idx file, gzipped or not."""
    data = store.read(path)
    start = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, UNSIGNED_BYTE, dimensions)) or len(data) < start:
        raise store.damaged(path, f"not an idx file of bytes in {dimensions} dimensions")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", dimensions, 4))
    if len(data) != start + math.prod(shape):
        raise store.damaged(path, f"{len(data) - start} bytes of content, its header says {math.prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_images(store: Store, images: str, labels: str, classes: int, first: int = 0) -> tuple[Array, Array]:
    """Read the pair of files `images` and `labels`; the lowest label is `first`."""
    image_path, label_path = store.need(images), store.need(labels)
    x, y = read_idx(store, image_path, 3), read_idx(store, label_path, 1).astype(np.int64) - first
    if len(x) != len(y):
        raise store.damaged(label_path, f"{len(y)} labels for the {len(x)} images of {image_path.name}")
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise store.damaged(label_path, f"labels are not {first} to {classes - 1 + first}")
    return x, y


def read_parts(
    store: Store, train: tuple[str, str], test: tuple[str, str], classes: int, first: int = 0
) -> tuple[Array, Array, int]:
    """Return images (n, 1, height, width), labels, and the length of the official test part at the end."""
    x, y = read_images(store, *train, classes, first)
    x_test, y_test = read_images(store, *test, classes, first)
    if x.shape[1:] != x_test.shape[1:]:
        raise store.damaged(store.need(test[0]), f"images are {x_test.shape[1:]}, in the training part {x.shape[1:]}")
    return np.concatenate([x, x_test])[:, None], np.concatenate([y, y_test]), len(y_test)
