"""The net of SPFL and PLGA for MNIST, EMNIST and CIFAR.

Personalized Heterogeneous FL with Gradient Similarity, Table 4. The table says 512 units in `fc1`, the
authors' code has 500.
"""

from torch import nn

from sparsona.models import MODELS
from sparsona.models._parts import TwoConvs, at_least_one


@MODELS.add
def spfl_cnn(shape: tuple[int, ...], outputs: int, width: int = 500) -> nn.Module:
    """Convolutions 5x5 to 20 and 50 channels without padding, `fc1` of `width` units, the head `fc2`.

    SPFL's stages are base = conv1, conv2, fc1 and head = fc2.

    >>> sum(p.numel() for p in spfl_cnn((1, 28, 28), 10).parameters())
    431080
    """
    at_least_one("spfl-cnn", width=width)
    return TwoConvs("spfl-cnn", shape, outputs, channels=(20, 50), kernel=5, hidden=(width,))
