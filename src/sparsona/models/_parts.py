"""Helpers of all models: checks of a sample's shape, and the net of two convolutions that most papers use."""

import torch.nn.functional as F
from torch import Tensor, nn

from sparsona.errors import InputError


def image_shape(model: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Return `shape` as (channels, height, width); the error names the shapes that `model` takes.

    >>> image_shape("leaf-cnn", (1, 28, 28), smallest=16)
    (1, 28, 28)
    >>> image_shape("leaf-cnn", (1, 8, 8), smallest=16)
    Traceback (most recent call last):
    sparsona.errors.InputError: model 'leaf-cnn' needs images of at least 16x16, not 8x8; use mlp or logistic
    """
    if len(shape) != 3:
        message = f"model {model!r} needs images (channels, height, width), not samples of shape {shape}"
        raise InputError(f"{message}; use mlp or logistic")
    channels, height, width = shape
    if min(height, width) < smallest:
        message = f"model {model!r} needs images of at least {smallest}x{smallest}, not {height}x{width}"
        raise InputError(f"{message}; use mlp or logistic")
    return channels, height, width


def at_least_one(model: str, **numbers: int) -> None:
    """Refuse a width, a vocabulary or a number of outputs below one."""
    for name, number in numbers.items():
        if number < 1:
            raise InputError(f"model {model!r}: {name} must be at least 1, not {number}")


class TwoConvs(nn.Module):
    """Two times (convolution, ReLU, 2x2 max-pool), then linear layers with ReLUs between them.

    The layers are the children ``conv1``, ``conv2`` and, from `first_linear` on, ``fc1``, ``fc2``, ... The
    last of them is the head. ReLU and max-pool commute, values and gradients alike, so the pool stands
    first here: the ReLU then works on a quarter of the numbers.
    """

    def __init__(
        self,
        model: str,
        shape: tuple[int, ...],
        outputs: int,
        *,
        channels: tuple[int, int],
        kernel: int,
        padding: int = 0,
        hidden: tuple[int, ...] = (),
        dropout: float = 0.0,
        first_linear: int = 1,
    ) -> None:
        super().__init__()
        loss = kernel - 1 - 2 * padding  # pixels that a convolution takes from each side length
        seen, height, width = image_shape(model, shape, smallest=4 + 3 * loss)
        at_least_one(model, outputs=outputs)
        first, second = channels
        self.conv1 = nn.Conv2d(seen, first, kernel, padding=padding)
        self.conv2 = nn.Conv2d(first, second, kernel, padding=padding)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        rows, columns = (((side - loss) // 2 - loss) // 2 for side in (height, width))
        widths = (second * rows * columns, *hidden, outputs)
        self._linear = tuple(f"fc{first_linear + i}" for i in range(len(widths) - 1))
        for name, inside, outside in zip(self._linear, widths, widths[1:], strict=False):
            self.add_module(name, nn.Linear(inside, outside))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = self.dropout(x.flatten(1))
        *hidden, head = self._linear
        for name in hidden:
            x = F.relu(self.get_submodule(name)(x))
        logits: Tensor = self.get_submodule(head)(x)
        return logits
