"""Nets of one or two linear layers, which take any shape of sample."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from sparsona.models import MODELS
from sparsona.models._parts import at_least_one


class Logistic(nn.Module):
    """One linear layer."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch."""
        logits: Tensor = self.fc1(x.flatten(1))
        return logits


class Perceptron(nn.Module):
    """Two linear layers with a ReLU between them."""

    def __init__(self, features: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, hidden)
        self.fc2 = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch."""
        logits: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return logits


@MODELS.named("logistic")
def logistic(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Build logistic regression for any shape of sample: no hidden layer, `fc1` is the head.

    >>> logistic((54,), 7)
    Logistic(
      (fc1): Linear(in_features=54, out_features=7, bias=True)
    )
    """
    at_least_one("logistic", outputs=outputs)
    return Logistic(math.prod(shape), outputs)


@MODELS.named("mlp")
def mlp(shape: tuple[int, ...], outputs: int, hidden: int = 50) -> nn.Module:
    """Build a net for any shape of sample, small images included; `fc2` is the head.

    The default width is that of the toy in FedPSE's listing (Dense 50 ReLU, Dense 10); its ReLU on the output is left
    out as an error, because the loss takes logits.

    >>> mlp((1, 8, 8), 10, hidden=20)
    Perceptron(
      (fc1): Linear(in_features=64, out_features=20, bias=True)
      (fc2): Linear(in_features=20, out_features=10, bias=True)
    )
    """
    at_least_one("mlp", outputs=outputs, hidden=hidden)
    return Perceptron(math.prod(shape), hidden, outputs)
