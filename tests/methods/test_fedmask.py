"""FedMask's scores: which weights count, and the gradient that goes straight through the mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.methods.fedmask import MaskScores, _unit
from sparsona.training.config import TrainConfig
from sparsona.training.vector import FlatModule


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 10), nn.ReLU(), nn.Linear(10, 4))


def test_scores_learn_which_weights_to_use() -> None:
    flat = FlatModule(net())
    region = np.arange(flat.layout.size) >= flat.layout["5.weight"].start
    count = int(region.sum())
    scores = np.random.default_rng(0).normal(size=count).astype(np.float32)
    learnt = MaskScores(scores, region, np.ones(count, np.bool_), TrainConfig())
    weights = flat.weights.clone()
    flat.gradient.zero_()
    outputs = learnt.forward(flat, weights, torch.randn(8, 1, 6, 6))
    assert (flat.weights[torch.from_numpy(region)][torch.from_numpy(scores < 0)] == 0).all()
    torch.autograd.backward(F.cross_entropy(outputs, torch.randint(0, 4, (8,))))
    learnt.backward(flat, weights)
    soft = torch.from_numpy(scores).sigmoid()
    wanted = (flat.gradient * weights)[torch.from_numpy(region)] * soft * (1 - soft)
    assert learnt.own is not None
    assert torch.allclose(learnt.own[1], wanted)


def test_scores_learn_as_fast_in_a_net_with_smaller_weights() -> None:
    """The gradient of a score has the weight in units of its tensor: of a last layer ten times as small, with a
    gradient that is as large, the scores move alike."""
    moved = []
    for size in (1.0, 0.1):
        weights = (size * np.array([1.0, -2.0, 3.0, 0.5])).astype(np.float32)
        flat = FlatModule(nn.Linear(4, 1, bias=False))
        layout = flat.layout
        region = np.ones(4, np.bool_)
        scores = MaskScores(
            np.full(4, 0.05, np.float32), region, region, TrainConfig(lr=5.0), unit=_unit(weights, layout)[region]
        )
        flat.gradient.copy_(torch.tensor([0.3, -0.2, 0.1, 0.7]))
        scores.backward(flat, torch.from_numpy(weights))
        assert scores.own is not None
        moved.append(scores.own[1].numpy().copy())
    assert moved[0] == pytest.approx(moved[1], rel=1e-5)
    assert np.abs(moved[0]).min() > 0
