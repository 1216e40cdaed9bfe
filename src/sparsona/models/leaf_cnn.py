"""The FEMNIST net of LEAF with unpadded convolutions, as pFedGate uses it for EMNIST and FEMNIST.

Chen et al.: Efficient Personalized Federated Learning via Sparse Model-Adaptation (pFedGate), ICML 2023;
the net comes from Caldas et al.: LEAF, a Benchmark for Federated Settings, 2018.
"""

from torch import nn

from sparsona.models import MODELS
from sparsona.models._parts import TwoConvs


@MODELS.add
def leaf_cnn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels without padding, `fc1` of 2048 units, the head `fc2`.

    >>> sum(p.numel() for p in leaf_cnn((1, 28, 28), 62).parameters())
    2278334
    """
    return TwoConvs("leaf-cnn", shape, outputs, channels=(32, 64), kernel=5, hidden=(2048,))
