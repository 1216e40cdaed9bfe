"""FEMNIST of LEAF (Caldas et al., 2018): handwriting of some 3,600 writers, each a natural client.

LEAF publishes a program, not files: it makes ``all_data_0.json`` and so on out of NIST's images. Put them
into the data set's folder. Images are kept as LEAF makes them: dark strokes on white, unlike MNIST, in 0..1
(here 0..255).
"""

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data._store import File, Store, cached, source
from sparsona.data.dataset import Array, Dataset

PATTERN = "all_data/all_data_*.json"
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
RECIPE = "femnist 1"


@source(
    about="handwriting of some 3,600 writers, 28x28 pixels, 62 classes; a natural group a writer",
    licence="BSD-2-Clause (LEAF); the images are in the public domain (NIST Special Database 19)",
    homepage="https://github.com/TalwalkarLab/leaf",
    files=(File(PATTERN),),
    by_hand="LEAF makes it: clone https://github.com/TalwalkarLab/leaf, run its data/femnist/preprocess.sh "
    "-s niid --sf 1.0 and put data/femnist/data/all_data/all_data_*.json there",
)
def load(store: Store) -> Dataset:
    """FEMNIST, from the publisher's files."""
    store.need(PATTERN)
    files = store.find_all(PATTERN)
    arrays = cached(store, files, RECIPE, lambda: _read(store, files))
    return Dataset(
        name="femnist",
        inputs=arrays["inputs"],
        targets=arrays["targets"],
        classes=len(CHARACTERS),
        groups=arrays["groups"],
        group_names=tuple(str(name) for name in arrays["writers"]),
        class_names=tuple(CHARACTERS),
        model="leaf-cnn",
    )


def _read(store: Store, files: Sequence[Path]) -> Mapping[str, Array]:
    """Read file by file, since a file as Python lists takes a hundred times the memory of its pixels."""
    writers: dict[str, int] = {}
    images: list[Array] = []
    labels: list[Array] = []
    groups: list[Array] = []
    for path in files:
        for writer, x, y in _writers(store, path):
            images.append(x)
            labels.append(y)
            groups.append(np.full(len(y), writers.setdefault(writer, len(writers)), np.int64))
    return {
        "inputs": np.concatenate(images),
        "targets": np.concatenate(labels),
        "groups": np.concatenate(groups),
        "writers": np.array(list(writers)),
    }


def _writers(store: Store, path: Path) -> list[tuple[str, Array, Array]]:
    try:
        content: Any = json.loads(store.read(path))
        parts = [(str(user), *_samples(content["user_data"][user])) for user in content["users"]]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise store.damaged(path, f"not a LEAF file: {type(error).__name__}: {error}".splitlines()[0]) from error
    if not parts:
        raise store.damaged(path, "it holds no users")
    return parts


def _samples(user: Any) -> tuple[Array, Array]:
    x = np.asarray(user["x"], np.float32).reshape(-1, 1, 28, 28)
    y = np.asarray(user["y"], np.int64)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} images and {len(y)} labels")
    if len(y) and not (0 <= y.min() <= y.max() < len(CHARACTERS) and 0 <= x.min() <= x.max() <= 1):
        raise ValueError("a label or a pixel is out of range")
    return np.rint(x * 255).astype(np.uint8), y
