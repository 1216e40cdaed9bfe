"""A perceptron with one hidden layer.

The default width is that of the toy in FedPSE's listing (Dense 50 ReLU, Dense 10); its ReLU on the output
is an error of the listing and left out, the loss wants logits.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from sparsona.models import MODELS
from sparsona.models._parts import at_least_one


class Perceptron(nn.Module):
    """A perceptron with ReLUs between its layers."""

    def __init__(self, features: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, hidden)
        self.fc2 = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch."""
        logits: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return logits


@MODELS.add
def mlp(shape: tuple[int, ...], outputs: int, hidden: int = 50) -> nn.Module:
    """Works on any shape of sample, small images included; `fc2` is the head.

    >>> mlp((1, 8, 8), 10, hidden=20)
    Perceptron(
      (fc1): Linear(in_features=64, out_features=20, bias=True)
      (fc2): Linear(in_features=20, out_features=10, bias=True)
    )
    """
    at_least_one("mlp", outputs=outputs, hidden=hidden)
    return Perceptron(math.prod(shape), hidden, outputs)
