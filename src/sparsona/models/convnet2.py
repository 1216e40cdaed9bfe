"""ConvNet2, the small net of the FedPSE experiments on MNIST and Fashion-MNIST.

FedPSE: Personalized Sparsification with Element-wise Aggregation for Federated Learning, Appendix C.2. The
paper gives only the name; this is the stock net of the Keras tutorials and of SecretFlow, whose code
FedPSE's listings resemble.
"""

from torch import nn

from sparsona.errors import InputError
from sparsona.models import MODELS
from sparsona.models._parts import TwoConvs


@MODELS.add
def convnet2(shape: tuple[int, ...], outputs: int, dropout: float = 0.5) -> nn.Module:
    """Convolutions 3x3 to 32 and 64 channels without padding, dropout, and the head `fc1`.

    >>> sum(p.numel() for p in convnet2((1, 28, 28), 10).parameters())
    34826
    """
    if not 0 <= dropout < 1:
        raise InputError(f"model 'convnet2': dropout must be at least 0 and below 1, not {dropout}")
    return TwoConvs("convnet2", shape, outputs, channels=(32, 64), kernel=3, dropout=dropout)
