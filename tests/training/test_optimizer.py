from __future__ import annotations

import numpy as np
import pytest
import torch

from sparsona.ops.moments import EMPTY
from sparsona.training.optimizer import Adam, Sgd


def quadratic(weights: torch.Tensor) -> torch.Tensor:
    return weights * torch.tensor([1.0, 2.0, 0.5]) + 0.1


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs(momentum: float) -> None:
    ours = torch.tensor([1.0, -2.0, 3.0])
    theirs = torch.nn.Parameter(ours.clone())
    reference = torch.optim.SGD([theirs], lr=0.1, momentum=momentum)
    optimizer = Sgd(0.1, momentum, ours, EMPTY)
    for _ in range(5):
        theirs.grad = quadratic(theirs.detach())
        reference.step()
        optimizer.step(ours, quadratic(ours))
    assert torch.allclose(ours, theirs.detach(), atol=1e-7)


def test_adam_is_torchs() -> None:
    ours = torch.tensor([1.0, -2.0, 3.0])
    theirs = torch.nn.Parameter(ours.clone())
    reference = torch.optim.Adam([theirs], lr=0.01)
    optimizer = Adam(0.01, ours, EMPTY)
    for _ in range(20):
        theirs.grad = quadratic(theirs.detach())
        reference.step()
        optimizer.step(ours, quadratic(ours))
    assert torch.allclose(ours, theirs.detach(), atol=1e-6)


def test_moments_continue_where_they_stopped() -> None:
    whole = torch.tensor([1.0, -2.0, 3.0])
    halves = whole.clone()
    optimizer = Adam(0.01, whole, EMPTY)
    moments = EMPTY
    for _ in range(4):
        optimizer.step(whole, quadratic(whole))
        part = Adam(0.01, halves, moments)
        part.step(halves, quadratic(halves))
        moments = part.moments()
    assert torch.equal(whole, halves)
    assert moments.step == 4
    assert moments.first.dtype == np.float32
