"""ResNet-18 for small images with group norm, the CIFAR-100 net of FedSpa.

Achieving Personalized Federated Learning with Sparse Local Models (FedSpa); after He, Zhang, Ren, Sun: Deep
Residual Learning for Image Recognition, CVPR 2016, with a 3x3 stem, without the first max-pool, and with
group norm (Wu and He, ECCV 2018) for batch norm.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from sparsona.models import MODELS
from sparsona.models._parts import at_least_one, image_shape

GROUPS = 32


class Block(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            conv = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.GroupNorm(GROUPS, after))

    def forward(self, x: Tensor) -> Tensor:
        """The features after the block."""
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet18 with GroupNorm."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, 64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc1 = nn.Linear(512, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch."""
        x = F.relu(self.norm1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc1(x.mean((2, 3)))
        return logits


@MODELS.add
def resnet18_gn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A stem `conv1`, stages `layer1` ... `layer4` of two blocks, the mean over all pixels, the head `fc1`.

    >>> sum(p.numel() for p in resnet18_gn((3, 32, 32), 100).parameters())
    11220132
    """
    channels, _, _ = image_shape("resnet18-gn", shape, smallest=8)
    at_least_one("resnet18-gn", outputs=outputs)
    return ResNet18(channels, outputs)
