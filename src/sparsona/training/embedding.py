"""Embeddings: the inputs of a module's last trained layer."""

from __future__ import annotations

import torch
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout


class LastInput:
    """Records the inputs of a module's last trained layer in each forward pass of a block.

    >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> with LastInput(net, Layout.of(net)) as last:
    ...     outputs = net(torch.zeros(4, 3))
    ...     last.embeddings().shape
    torch.Size([4, 2])
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self._name = layout.layers[-1]
        self._layer = module.get_submodule(self._name)
        self._found: torch.Tensor | None = None

    def __enter__(self) -> LastInput:
        self._hook = self._layer.register_forward_pre_hook(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _note(self, _: nn.Module, inputs: tuple[object, ...]) -> None:
        self._found = inputs[0] if inputs and isinstance(inputs[0], torch.Tensor) else None

    def embeddings(self) -> torch.Tensor:
        """The embeddings of the newest batch, one flat row per input."""
        found, self._found = self._found, None
        if found is None:
            raise InputError(f"the model has no embeddings: its forward must call its last layer {self._name!r}")
        return found.flatten(1)
