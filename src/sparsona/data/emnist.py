"""EMNIST: handwritten letters and digits in the form of MNIST (Cohen, Afshar, Tapson, van Schaik, 2017).

Three of the published splits: ``emnist:balanced`` (47 classes, the default), ``emnist:byclass`` (62),
``emnist:letters`` (26).
"""

import string
from dataclasses import dataclass

import numpy as np

from sparsona.data._idx import read_parts
from sparsona.data._source import File, source
from sparsona.data._store import Store
from sparsona.data.dataset import Dataset
from sparsona.errors import InputError
from sparsona.registry import suggest


@dataclass(frozen=True)
class EmnistSplit:
    """One of EMNIST's ways to divide its characters into classes."""

    characters: str
    first: int
    """The lowest label in the files."""
    model: str


SPLITS = {
    "balanced": EmnistSplit(string.digits + string.ascii_uppercase + "abdefghnqrt", 0, "convnet2"),
    "byclass": EmnistSplit(string.digits + string.ascii_uppercase + string.ascii_lowercase, 0, "leaf-cnn"),
    "letters": EmnistSplit(string.ascii_lowercase, 1, "lenet5"),
}


def _names(split: str, part: str) -> tuple[str, str]:
    stem = f"gzip/emnist-{split}-{part}"
    return f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz"


@source(
    about="handwritten letters and digits, 28x28; :balanced (47 classes), :byclass (62), :letters (26)",
    licence="public domain (NIST Special Database 19)",
    homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    files=(
        File(
            "gzip.zip",
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            md5="58c8d27c78d21e728a6bc7b3cc06412e",
            size=561753746,
            members=tuple(name for split in SPLITS for part in ("train", "test") for name in _names(split, part)),
        ),
    ),
)
def load(store: Store, split: str = "balanced") -> Dataset:
    """The files hold each image transposed; here they stand upright. The labels of `letters` start at 1."""
    if split not in SPLITS:
        raise InputError(f"emnist has no split {split!r}{suggest(split, SPLITS)}")
    chosen = SPLITS[split]
    classes = len(chosen.characters)
    inputs, targets, test = read_parts(store, _names(split, "train"), _names(split, "test"), classes, chosen.first)
    return Dataset(
        name=f"emnist:{split}",
        inputs=np.ascontiguousarray(inputs.swapaxes(2, 3)),
        targets=targets,
        classes=classes,
        official_test=test,
        mean=(0.1307,),
        std=(0.3081,),
        class_names=tuple(chosen.characters),
        model=chosen.model,
    )
