"""MNIST: 70,000 handwritten digits (LeCun, Cortes, Burges), read from the published idx files."""

from sparsona.data._idx import idx_files, read_parts
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.dataset import Dataset

# The publisher's own server turns programs away; the first two are the copies that others rely on.
URLS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
FILES = {
    "train-images-idx3-ubyte.gz": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
    "train-labels-idx1-ubyte.gz": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
    "t10k-images-idx3-ubyte.gz": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
    "t10k-labels-idx1-ubyte.gz": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
}
TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


@source(
    about="70,000 handwritten digits, 28x28 pixels, 10 classes",
    licence="CC BY-SA 3.0",
    homepage="http://yann.lecun.com/exdb/mnist/",
    files=idx_files(URLS, FILES),
)
def load(store: Store) -> Dataset:
    """MNIST, from the publisher's files."""
    inputs, targets, test = read_parts(store, TRAIN, TEST, classes=10)
    return Dataset(
        name="mnist",
        inputs=inputs,
        targets=targets,
        classes=10,
        official_test=test,
        mean=(0.1307,),
        std=(0.3081,),
        class_names=tuple("0123456789"),
        model="convnet2",
    )
