"""The CIFAR-10 net of pFedGate, a LeNet with wider convolutions.

Chen et al.: Efficient Personalized Federated Learning via Sparse Model-Adaptation (pFedGate), ICML 2023.
"""

from torch import nn

from sparsona.models import MODELS
from sparsona.models._parts import TwoConvs


@MODELS.add
def lenet_cifar(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 120, `fc2` of 84, the head `fc3`.

    >>> sum(p.numel() for p in lenet_cifar((3, 32, 32), 10).parameters())
    256830
    """
    return TwoConvs("lenet-cifar", shape, outputs, channels=(32, 64), kernel=5, hidden=(120, 84))
