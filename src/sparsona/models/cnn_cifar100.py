"""The CIFAR-100 net of pFedGate.

Chen et al.: Efficient Personalized Federated Learning via Sparse Model-Adaptation (pFedGate), ICML 2023.
The size is that of the paper; the authors' scripts use another net (1600-1920-504-100).
"""

from torch import nn

from sparsona.models import MODELS
from sparsona.models._parts import TwoConvs


@MODELS.add
def cnn_cifar100(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 2048 units, the head `fc2`.

    >>> sum(p.numel() for p in cnn_cifar100((3, 32, 32), 100).parameters())
    3537444
    """
    return TwoConvs("cnn-cifar100", shape, outputs, channels=(32, 64), kernel=5, hidden=(2048,))
