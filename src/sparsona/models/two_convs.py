"""The nets of two convolutions that most papers use on small images."""

import torch.nn.functional as F
from torch import Tensor, nn

from sparsona.errors import InputError
from sparsona.models import MODELS
from sparsona.models._parts import at_least_one, image_shape


class TwoConvs(nn.Module):
    """Two times (convolution, ReLU, 2x2 max-pool), then linear layers with ReLUs between them.

    The layers are the children ``conv1``, ``conv2`` and, from `first_linear` on, ``fc1``, ``fc2``, ... The
    last of them is the head. ReLU and max-pool commute, values and gradients alike, so the pool stands
    first here: the ReLU then works on a quarter of the numbers.
    """

    def __init__(
        self,
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
    ) -> None:
        super().__init__()
        loss = kernel - 1 - 2 * padding  # pixels that a convolution takes from each side length
        seen, height, width = image_shape(model, shape, smallest=4 + 3 * loss)
        at_least_one(model, outputs=outputs)
        first, second = channels
        self.conv1 = nn.Conv2d(seen, first, kernel, padding=padding)
        self.conv2 = nn.Conv2d(first, second, kernel, padding=padding)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        rows, columns = (((side - loss) // 2 - loss) // 2 for side in (height, width))
        widths = (second * rows * columns, *hidden, outputs)
        self._linear = tuple(f"fc{first_linear + i}" for i in range(len(widths) - 1))
        for name, inside, outside in zip(self._linear, widths, widths[1:], strict=False):
            self.add_module(name, nn.Linear(inside, outside))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = self.dropout(x.flatten(1))
        *hidden, head = self._linear
        for name in hidden:
            x = F.relu(self.get_submodule(name)(x))
        logits: Tensor = self.get_submodule(head)(x)
        return logits


@MODELS.named("cnn-mcmahan")
def cnn_mcmahan(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels that keep the image's size, `fc1` of 512 units, the head `fc2`.

    The MNIST net of McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
    from Decentralized Data, AISTATS 2017, section 3, which introduced FedAvg.

    >>> sum(p.numel() for p in cnn_mcmahan((1, 28, 28), 10).parameters())
    1663370
    """
    return TwoConvs("cnn-mcmahan", shape, outputs, channels=(32, 64), kernel=5, padding=2, hidden=(512,))


@MODELS.named("leaf-cnn")
def leaf_cnn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 2048 units, the head `fc2`.

    The FEMNIST net of LEAF (Caldas et al.: LEAF, a Benchmark for Federated Settings, 2018) with unpadded convolutions,
    as pFedGate (Chen et al., ICML 2023) uses it for EMNIST and FEMNIST.

    >>> sum(p.numel() for p in leaf_cnn((1, 28, 28), 62).parameters())
    2278334
    """
    return TwoConvs("leaf-cnn", shape, outputs, channels=(32, 64), kernel=5, hidden=(2048,))


@MODELS.named("cnn-cifar100")
def cnn_cifar100(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 2048 units, the head `fc2`.

    The CIFAR-100 net of pFedGate (Chen et al., ICML 2023), in the size of the paper; the authors' scripts use another
    net (1600-1920-504-100).

    >>> sum(p.numel() for p in cnn_cifar100((3, 32, 32), 100).parameters())
    3537444
    """
    return TwoConvs("cnn-cifar100", shape, outputs, channels=(32, 64), kernel=5, hidden=(2048,))


@MODELS.named("lenet-cifar")
def lenet_cifar(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 120, `fc2` of 84, the head `fc3`.

    The CIFAR-10 net of pFedGate (Chen et al., ICML 2023), a LeNet with wider convolutions.

    >>> sum(p.numel() for p in lenet_cifar((3, 32, 32), 10).parameters())
    256830
    """
    return TwoConvs("lenet-cifar", shape, outputs, channels=(32, 64), kernel=5, hidden=(120, 84))


@MODELS.named("lenet5")
def lenet5(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 20 and 50 channels without padding, `fc3` of 500 units, the head `fc4`.

    LeNet-5 as Caffe has it, the EMNIST-Letters net of FedSpa (Achieving Personalized Federated Learning with Sparse
    Local Models) and of SNIP (Lee, Ajanthan, Torr, ICLR 2019), after LeCun, Bottou, Bengio, Haffner: Gradient-Based
    Learning Applied to Document Recognition, 1998. The linear layers count on from the convolutions, as in FedSpa's
    table of layer densities.

    >>> sum(p.numel() for p in lenet5((1, 28, 28), 26).parameters())
    439096
    """
    return TwoConvs("lenet5", shape, outputs, channels=(20, 50), kernel=5, hidden=(500,), first_linear=3)


@MODELS.named("spfl-cnn")
def spfl_cnn(shape: tuple[int, ...], outputs: int, width: int = 500) -> nn.Module:
    """Convolutions 5x5 to 20 and 50 channels without padding, `fc1` of `width` units, the head `fc2`.

    The net of SPFL and PLGA (Personalized Heterogeneous FL with Gradient Similarity, Table 4) for MNIST, EMNIST and
    CIFAR. The table says 512 units in `fc1`, the authors' code has 500. SPFL's stages are base = conv1, conv2, fc1 and
    head = fc2.

    >>> sum(p.numel() for p in spfl_cnn((1, 28, 28), 10).parameters())
    431080
    """
    at_least_one("spfl-cnn", width=width)
    return TwoConvs("spfl-cnn", shape, outputs, channels=(20, 50), kernel=5, hidden=(width,))


@MODELS.named("convnet2")
def convnet2(shape: tuple[int, ...], outputs: int, dropout: float = 0.5) -> nn.Module:
    """Convolutions 3x3 to 32 and 64 channels without padding, dropout, and the head `fc1`.

    The small net of FedPSE's experiments on MNIST and Fashion-MNIST (Personalized Sparsification with Element-wise
    Aggregation for Federated Learning, Appendix C.2). The paper gives only the name; this is the stock net of the Keras
    tutorials and of SecretFlow, whose code FedPSE's listings resemble.

    >>> sum(p.numel() for p in convnet2((1, 28, 28), 10).parameters())
    34826
    """
    if not 0 <= dropout < 1:
        raise InputError(f"model 'convnet2': dropout must be at least 0 and below 1, not {dropout}")
    return TwoConvs("convnet2", shape, outputs, channels=(32, 64), kernel=3, dropout=dropout)
