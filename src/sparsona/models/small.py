"""Small nets: one or two linear layers, an embedding, and the nets of two convolutions that most papers use."""

import math
from itertools import pairwise

from torch import Tensor, nn

from sparsona.errors import InputError
from sparsona.models import MODELS
from sparsona.models._build import at_least_one, image_shape, named_layers


@MODELS.named("logistic")
def logistic(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Build logistic regression for any shape of sample: no hidden layer, `fc1` is the head."""
    at_least_one("logistic", outputs=outputs)
    return named_layers(flatten=nn.Flatten(), fc1=nn.Linear(math.prod(shape), outputs))


@MODELS.named("mlp")
def mlp(shape: tuple[int, ...], outputs: int, hidden: int = 50) -> nn.Module:
    """Build a net for any shape of sample, small images included; `fc2` is the head.

    The default width is that of the toy in FedPSE's listing (Dense 50 ReLU, Dense 10); its ReLU on the output is left
    out as an error, because the loss takes logits.
    """
    at_least_one("mlp", outputs=outputs, hidden=hidden)
    first, second = nn.Linear(math.prod(shape), hidden), nn.Linear(hidden, outputs)
    return named_layers(flatten=nn.Flatten(), fc1=first, relu=nn.ReLU(), fc2=second)


class TextEmbedding(nn.Module):
    """The mean of the words' embeddings, and a linear layer."""

    def __init__(self, vocabulary: int, width: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        # Keras's range. torch's unit normal drowns the mean over a text in noise for many epochs.
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self.fc1 = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """The outputs for a batch."""
        logits: Tensor = self.fc1(self.embedding(tokens.long()).mean(1))
        return logits


@MODELS.named("text-embedding")
def text_embedding(shape: tuple[int, ...], outputs: int, vocabulary: int = 10000, width: int = 16) -> nn.Module:
    """The mean of the tokens' embeddings (padding counts, as in Keras), then the head `fc1`.

    The IMDB net of FedPSE (Personalized Sparsification with Element-wise Aggregation for Federated Learning, Appendix
    C.2): "one Embedding layer, which is prebuilt in Keras, followed by a fully-connected layer".
    """
    if len(shape) != 1:
        message = f"model 'text-embedding' needs texts of shape (length,), not samples of shape {shape}"
        raise InputError(f"{message}; use mlp, or convnet2 for images")
    at_least_one("text-embedding", outputs=outputs, vocabulary=vocabulary, width=width)
    return TextEmbedding(vocabulary, width, outputs)


def _two_convs(
    model: str,
    shape: tuple[int, ...],
    outputs: int,
    *,
    channels: tuple[int, int],
    kernel: int,
    padding: int = 0,
    hidden: tuple[int, ...] = (),
    dropout: float = 0.0,
    first_linear: int = 1,
) -> nn.Module:
    """Return two times (convolution, ReLU, 2x2 max-pool), then linear layers with ReLUs between them.

    The layers with weights are ``conv1``, ``conv2`` and, from `first_linear` on, ``fc1``, ``fc2``, ... The last of them
    is the head. ReLU and max-pool commute, values and gradients alike, so the pool stands first here: the ReLU then
    works on a quarter of the numbers.
    """
    loss = kernel - 1 - 2 * padding  # pixels that a convolution takes from each side length
    before, height, width = image_shape(model, shape, smallest=4 + 3 * loss)
    at_least_one(model, outputs=outputs)
    layers: dict[str, nn.Module] = {}
    for number, after in enumerate(channels, 1):
        layers[f"conv{number}"] = nn.Conv2d(before, after, kernel, padding=padding)
        layers |= {f"pool{number}": nn.MaxPool2d(2), f"relu{number}": nn.ReLU()}
        before = after
    layers |= {"flatten": nn.Flatten()} | ({"dropout": nn.Dropout(dropout)} if dropout else {})
    rows, columns = (((side - loss) // 2 - loss) // 2 for side in (height, width))
    widths = (before * rows * columns, *hidden, outputs)
    for number, (inside, outside) in enumerate(pairwise(widths), first_linear):
        layers |= {f"fc{number}": nn.Linear(inside, outside), f"relu-fc{number}": nn.ReLU()}
    layers.popitem()  # no ReLU follows the head
    return named_layers(**layers)


@MODELS.named("cnn-mcmahan")
def cnn_mcmahan(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels that keep the image's size, `fc1` of 512 units, the head `fc2`.

    The MNIST net of McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
    from Decentralized Data, AISTATS 2017, section 3, which introduced FedAvg.
    """
    return _two_convs("cnn-mcmahan", shape, outputs, channels=(32, 64), kernel=5, padding=2, hidden=(512,))


@MODELS.named("leaf-cnn")
def leaf_cnn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 2048 units, the head `fc2`.

    The FEMNIST net of LEAF (Caldas et al.: LEAF, a Benchmark for Federated Settings, 2018) with unpadded convolutions,
    as pFedGate (Chen et al., ICML 2023) uses it for EMNIST and FEMNIST.
    """
    return _two_convs("leaf-cnn", shape, outputs, channels=(32, 64), kernel=5, hidden=(2048,))


@MODELS.named("cnn-cifar100")
def cnn_cifar100(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 2048 units, the head `fc2`.

    The CIFAR-100 net of pFedGate (Chen et al., ICML 2023), in the size of the paper; the authors' scripts use another
    net (1600-1920-504-100).
    """
    return _two_convs("cnn-cifar100", shape, outputs, channels=(32, 64), kernel=5, hidden=(2048,))


@MODELS.named("lenet-cifar")
def lenet_cifar(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 120, `fc2` of 84, the head `fc3`.

    The CIFAR-10 net of pFedGate (Chen et al., ICML 2023), a LeNet with wider convolutions.
    """
    return _two_convs("lenet-cifar", shape, outputs, channels=(32, 64), kernel=5, hidden=(120, 84))


@MODELS.named("lenet5")
def lenet5(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 20 and 50 channels without padding, `fc3` of 500 units, the head `fc4`.

    LeNet-5 as Caffe has it, the EMNIST-Letters net of FedSpa (Achieving Personalized Federated Learning with Sparse
    Local Models) and of SNIP (Lee, Ajanthan, Torr, ICLR 2019), after LeCun, Bottou, Bengio, Haffner: Gradient-Based
    Learning Applied to Document Recognition, 1998. The linear layers count on from the convolutions, as in FedSpa's
    table of layer densities.
    """
    return _two_convs("lenet5", shape, outputs, channels=(20, 50), kernel=5, hidden=(500,), first_linear=3)


@MODELS.named("spfl-cnn")
def spfl_cnn(shape: tuple[int, ...], outputs: int, width: int = 500) -> nn.Module:
    """Convolutions 5x5 to 20 and 50 channels without padding, `fc1` of `width` units, the head `fc2`.

    The net of SPFL and PLGA (Personalized Heterogeneous FL with Gradient Similarity, Table 4) for MNIST, EMNIST and
    CIFAR. The table says 512 units in `fc1`, the authors' code has 500. SPFL's stages are base = conv1, conv2, fc1 and
    head = fc2.
    """
    at_least_one("spfl-cnn", width=width)
    return _two_convs("spfl-cnn", shape, outputs, channels=(20, 50), kernel=5, hidden=(width,))


@MODELS.named("convnet2")
def convnet2(shape: tuple[int, ...], outputs: int, dropout: float = 0.5) -> nn.Module:
    """Convolutions 3x3 to 32 and 64 channels without padding, dropout, and the head `fc1`.

    The small net of FedPSE's experiments on MNIST and Fashion-MNIST (Personalized Sparsification with Element-wise
    Aggregation for Federated Learning, Appendix C.2). The paper gives only the name; this is the stock net of the Keras
    tutorials and of SecretFlow, whose code FedPSE's listings resemble.
    """
    if not 0 <= dropout < 1:
        raise InputError(f"model 'convnet2': dropout must be at least 0 and below 1, not {dropout}")
    return _two_convs("convnet2", shape, outputs, channels=(32, 64), kernel=3, dropout=dropout)
