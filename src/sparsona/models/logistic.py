"""Multinomial logistic regression: one linear layer on the flattened sample."""

import math

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


@MODELS.add
def logistic(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The convex one: any shape of sample, no hidden layer, `fc1` is the head.

    >>> logistic((54,), 7)
    Logistic(
      (fc1): Linear(in_features=54, out_features=7, bias=True)
    )
    """
    at_least_one("logistic", outputs=outputs)
    return Logistic(math.prod(shape), outputs)
