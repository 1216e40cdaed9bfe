"""The MNIST net of the paper that introduced FedAvg.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, section 3.
"""

from torch import nn

from sparsona.models import MODELS
from sparsona.models._parts import TwoConvs


@MODELS.add
def cnn_mcmahan(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 32 and 64 channels that keep the image's size, `fc1` of 512 units, the head `fc2`.

    >>> sum(p.numel() for p in cnn_mcmahan((1, 28, 28), 10).parameters())
    1663370
    """
    return TwoConvs("cnn-mcmahan", shape, outputs, channels=(32, 64), kernel=5, padding=2, hidden=(512,))
