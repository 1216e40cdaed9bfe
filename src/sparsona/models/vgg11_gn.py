"""VGG-11 with group norm, the CIFAR-10 net of FedSpa.

Achieving Personalized Federated Learning with Sparse Local Models (FedSpa); after Simonyan and Zisserman:
Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR 2015. Group norm (Wu and He, ECCV
2018) has no running statistics, so the whole net travels as weights.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from sparsona.models import MODELS
from sparsona.models._parts import at_least_one, image_shape

WIDTHS = (64, 128, 256, 256, 512, 512, 512, 512)
POOLED = (1, 2, 4, 6, 8)  # the convolutions that a 2x2 max-pool follows


class VGG11(nn.Module):
    """VGG11 with GroupNorm."""

    def __init__(self, channels: int, height: int, width: int, outputs: int) -> None:
        super().__init__()
        before = channels
        for i, after in enumerate(WIDTHS, start=1):
            conv = nn.Conv2d(before, after, 3, padding=1)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            self.add_module(f"conv{i}", conv)
            self.add_module(f"norm{i}", nn.GroupNorm(32, after))
            before = after
        self.fc1 = nn.Linear(before * (height // 32) * (width // 32), outputs)
        nn.init.normal_(self.fc1.weight, std=0.01)
        nn.init.zeros_(self.fc1.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch."""
        for i in range(1, len(WIDTHS) + 1):
            x = F.relu(self.get_submodule(f"norm{i}")(self.get_submodule(f"conv{i}")(x)))
            if i in POOLED:
                x = F.max_pool2d(x, 2)
        logits: Tensor = self.fc1(x.flatten(1))
        return logits


@MODELS.add
def vgg11_gn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Eight convolutions 3x3 `conv1` ... `conv8`, each with a group norm of 32 groups, and the head `fc1`.

    Initial weights as in the authors' code: He's normal for the convolutions, a small normal for the head.

    >>> sum(p.numel() for p in vgg11_gn((3, 32, 32), 10).parameters())
    9231114
    """
    at_least_one("vgg11-gn", outputs=outputs)
    return VGG11(*image_shape("vgg11-gn", shape, smallest=32), outputs)
