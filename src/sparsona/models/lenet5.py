"""LeNet-5 as Caffe has it, the EMNIST-Letters net of FedSpa.

Achieving Personalized Federated Learning with Sparse Local Models (FedSpa); the net is the one of SNIP
(Lee, Ajanthan, Torr, ICLR 2019) after LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to
Document Recognition, 1998.
"""

from torch import nn

from sparsona.models import MODELS
from sparsona.models._parts import TwoConvs


@MODELS.add
def lenet5(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Convolutions 5x5 to 20 and 50 channels without padding, `fc3` of 500 units, the head `fc4`.

    The linear layers count on from the convolutions, as in FedSpa's table of layer densities.

    >>> sum(p.numel() for p in lenet5((1, 28, 28), 26).parameters())
    439096
    """
    return TwoConvs("lenet5", shape, outputs, channels=(20, 50), kernel=5, hidden=(500,), first_linear=3)
