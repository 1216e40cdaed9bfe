"""MNIST and data sets in its form: greyscale images of 28x28 pixels in idx files.

MNIST: 70,000 handwritten digits (LeCun, Cortes, Burges). Fashion-MNIST: as many photographs of clothes (Xiao, Rasul,
Vollgraf, 2017). EMNIST: handwritten letters and digits (Cohen, Afshar, Tapson, van Schaik, 2017).
"""

import math
import string
from pathlib import Path

import numpy as np

from sparsona.data._store import File, Store, source
from sparsona.data.dataset import Array, Dataset
from sparsona.errors import InputError
from sparsona.registry import suggest

UNSIGNED_BYTE = 8
TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
EMNIST = {
    "balanced": (string.digits + string.ascii_uppercase + "abdefghnqrt", "convnet2"),
    "byclass": (string.digits + string.ascii_uppercase + string.ascii_lowercase, "leaf-cnn"),
    "letters": (string.ascii_lowercase, "lenet5"),
}
"""EMNIST's ways to divide its characters into classes: the characters, and the usual net."""


def _published(urls: tuple[str, ...], *known: tuple[str, int]) -> tuple[File, ...]:
    """Return the files of `TRAIN` and `TEST` below `urls`; `known` has the sha256 and the size of each."""
    return tuple(
        File(name, tuple(url + name for url in urls), sha256=sha256, size=size)
        for name, (sha256, size) in zip((*TRAIN, *TEST), known, strict=True)
    )


def _emnist_files(split: str, part: str) -> tuple[str, str]:
    stem = f"gzip/emnist-{split}-{part}"
    return f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz"


@source(
    "mnist",
    about="70,000 handwritten digits, 28x28 pixels, 10 classes",
    licence="CC BY-SA 3.0",
    homepage="http://yann.lecun.com/exdb/mnist/",
    files=_published(
        # The publisher's own server turns programs away; the first two are the copies that others rely on.
        (
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    ),
)
def mnist(store: Store) -> Dataset:
    """MNIST, from the publisher's files."""
    return _dataset("mnist", *_read_parts(store, TRAIN, TEST, 10), tuple("0123456789"))


@source(
    "fashion-mnist",
    about="70,000 photographs of clothes, 28x28 pixels, 10 classes",
    licence="MIT",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    files=_published(
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    ),
    system=("/usr/share/datasets/fashion-mnist",),
)
def fashion_mnist(store: Store) -> Dataset:
    """Fashion-MNIST, from the publisher's files."""
    return _dataset("fashion-mnist", *_read_parts(store, TRAIN, TEST, 10), CLOTHES, scale=(0.2860, 0.3530))


@source(
    "emnist",
    about="handwritten letters and digits, 28x28; :balanced (47 classes), :byclass (62), :letters (26)",
    licence="public domain (NIST Special Database 19)",
    homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    files=(
        File(
            "gzip.zip",
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            md5="58c8d27c78d21e728a6bc7b3cc06412e",
            size=561753746,
            members=tuple(f for split in EMNIST for part in ("train", "test") for f in _emnist_files(split, part)),
        ),
    ),
)
def emnist(store: Store, split: str = "balanced") -> Dataset:
    """The files hold each image transposed; here they stand upright. The labels of `letters` start at 1."""
    if split not in EMNIST:
        raise InputError(f"emnist has no split {split!r}{suggest(split, EMNIST)}")
    characters, model = EMNIST[split]
    files, first = (_emnist_files(split, "train"), _emnist_files(split, "test")), int(split == "letters")
    inputs, targets, test = _read_parts(store, *files, len(characters), first)
    upright = np.ascontiguousarray(inputs.swapaxes(2, 3))
    return _dataset(f"emnist:{split}", upright, targets, test, tuple(characters), model)


def _dataset(
    name: str,
    inputs: Array,
    targets: Array,
    test: int,
    classes: tuple[str, ...],
    model: str = "convnet2",
    scale: tuple[float, float] = (0.1307, 0.3081),
) -> Dataset:
    mean, std = scale
    return Dataset(
        name, inputs, targets, len(classes), test, mean=(mean,), std=(std,), class_names=classes, model=model
    )


def _read_idx(store: Store, path: Path, dimensions: int) -> Array:
    """Return the array of unsigned bytes in an idx file, gzipped or not."""
    data = store.read(path)
    start = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, UNSIGNED_BYTE, dimensions)) or len(data) < start:
        raise store.damaged(path, f"not an idx file of bytes in {dimensions} dimensions")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", dimensions, 4))
    if len(data) != start + math.prod(shape):
        raise store.damaged(path, f"{len(data) - start} bytes of content, its header says {math.prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _read_images(store: Store, images: str, labels: str, classes: int, first: int = 0) -> tuple[Array, Array]:
    """Read the pair of files `images` and `labels`; the lowest label is `first`."""
    image_path, label_path = store.need(images), store.need(labels)
    x, y = _read_idx(store, image_path, 3), _read_idx(store, label_path, 1).astype(np.int64) - first
    if len(x) != len(y):
        raise store.damaged(label_path, f"{len(y)} labels for the {len(x)} images of {image_path.name}")
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise store.damaged(label_path, f"labels are not {first} to {classes - 1 + first}")
    return x, y


def _read_parts(
    store: Store, train: tuple[str, str], test: tuple[str, str], classes: int, first: int = 0
) -> tuple[Array, Array, int]:
    """Return images (n, 1, height, width), labels, and the length of the official test part at the end."""
    x, y = _read_images(store, *train, classes, first)
    x_test, y_test = _read_images(store, *test, classes, first)
    if x.shape[1:] != x_test.shape[1:]:
        raise store.damaged(store.need(test[0]), f"images are {x_test.shape[1:]}, in the training part {x.shape[1:]}")
    return np.concatenate([x, x_test])[:, None], np.concatenate([y, y_test]), len(y_test)
