"""Fashion-MNIST: 70,000 photographs of clothes in the form of MNIST (Xiao, Rasul, Vollgraf, 2017)."""

from sparsona.data._idx import idx_files, read_parts
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.dataset import Dataset

URLS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
FILES = {
    "train-images-idx3-ubyte.gz": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
    "train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
    "t10k-images-idx3-ubyte.gz": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
    "t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
}
TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@source(
    about="70,000 photographs of clothes, 28x28 pixels, 10 classes",
    licence="MIT",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    files=idx_files(URLS, FILES),
    system=("/usr/share/datasets/fashion-mnist",),
)
def load(store: Store) -> Dataset:
    """Fashion-MNIST, from the publisher's files."""
    inputs, targets, test = read_parts(store, TRAIN, TEST, classes=10)
    return Dataset(
        name="fashion-mnist",
        inputs=inputs,
        targets=targets,
        classes=10,
        official_test=test,
        mean=(0.2860,),
        std=(0.3530,),
        class_names=CLOTHES,
        model="convnet2",
    )
