"""The checks of every model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from sparsona.chance import Chance
from sparsona.errors import ContractError
from sparsona.training.runner import channels_last
from sparsona.training.vector import FlatModule


def check_model(build: Callable[..., nn.Module], shape: tuple[int, ...], outputs: int = 10, **options: Any) -> None:
    """Check that a module fits a layout, gives one row of outputs per sample, and follows the seed."""
    flats = []
    for _ in range(2):
        with Chance(5).torch("initial weights"):
            flats.append(FlatModule(build(shape, outputs, **options)))
    if not np.array_equal(flats[0].read(), flats[1].read()):
        raise ContractError("the same seed must give the same initial weights")
    flat = flats[0]
    weights = flat.read()
    flat.load(weights * 2)
    if not np.array_equal(flat.read(), weights * 2):
        raise ContractError("weights do not survive being loaded and read")
    flat.load(weights)
    tokens = len(shape) == 1 and any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in flat.module.modules())
    inputs = (
        torch.ones(3, *shape, dtype=torch.int64)
        if tokens
        else torch.linspace(-1, 1, 3).reshape(3, *(1,) * len(shape)).expand(3, *shape)
    )
    flat.module.eval()
    answer = flat.module(inputs)
    if answer.shape != (3, outputs):
        raise ContractError(f"3 samples must give outputs of shape (3, {outputs}), not {tuple(answer.shape)}")
    if len(shape) == 3 and not torch.allclose(answer, flat.module(channels_last(inputs)), atol=1e-4):
        raise ContractError("the model answers differently when its input is in channels_last memory")
    flat.module.train()
    gradient = flat.gradient
    torch.autograd.backward(flat.module(inputs).sum())
    if not torch.isfinite(gradient).all():
        raise ContractError("the gradient is not finite")
