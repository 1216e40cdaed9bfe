"""The large nets of FedSpa (Achieving Personalized Federated Learning with Sparse Local Models), with group norm.

VGG-11 for CIFAR-10, after Simonyan and Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition,
ICLR 2015. ResNet-18 for CIFAR-100, after He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016,
with a 3x3 stem and without the first max-pool. Group norm (Wu and He, ECCV 2018) has no running statistics, so a whole
net travels as weights.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from sparsona.models import MODELS
from sparsona.models._build import at_least_one, image_shape, named_layers

GROUPS = 32
WIDTHS = (64, 128, 256, 256, 512, 512, 512, 512)
POOLED = (1, 2, 4, 6, 8)  # the convolutions of VGG-11 that a 2x2 max-pool follows


@MODELS.named("vgg11-gn")
def vgg11_gn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Eight convolutions 3x3 `conv1` ... `conv8`, each with a group norm of 32 groups, and the head `fc1`.

    Initial weights as in the authors' code: He's normal for the convolutions, a small normal for the head.
    """
    at_least_one("vgg11-gn", outputs=outputs)
    before, height, width = image_shape("vgg11-gn", shape, smallest=32)
    layers: dict[str, nn.Module] = {}
    for number, after in enumerate(WIDTHS, 1):
        conv = nn.Conv2d(before, after, 3, padding=1)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        layers |= {f"conv{number}": conv, f"norm{number}": nn.GroupNorm(GROUPS, after), f"relu{number}": nn.ReLU()}
        if number in POOLED:
            layers[f"pool{number}"] = nn.MaxPool2d(2)
        before = after
    head = nn.Linear(before * (height // 32) * (width // 32), outputs)
    nn.init.normal_(head.weight, std=0.01)
    nn.init.zeros_(head.bias)
    return named_layers(**layers, flatten=nn.Flatten(), fc1=head)


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


@MODELS.named("resnet18-gn")
def resnet18_gn(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A stem `conv1`, stages `layer1` ... `layer4` of two blocks, the mean over all pixels, the head `fc1`."""
    channels, _, _ = image_shape("resnet18-gn", shape, smallest=8)
    at_least_one("resnet18-gn", outputs=outputs)
    return ResNet18(channels, outputs)
