"""Weight transforms: the training loop runs gates, masks and narrow nets through them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from sparsona.methods.fedavg import FedAvg
from sparsona.testing import tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.job import TrainJob, WeightTransform
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner
from sparsona.training.step import GradientSpans, Proximal
from sparsona.training.vector import FlatModule

CONFIG = TrainConfig(batch=16, lr=0.05, momentum=0.9, weight_decay=0.01)


class Halved(WeightTransform):
    """Runs the module with `factor` times the weights, trains the factor, and moves one of two halves at a time."""

    needs_pairs = True

    def __init__(self, factor: float = 1.0, halves: Sequence[Sequence[slice] | None] = (None,)) -> None:
        self.factor = torch.tensor([factor])
        self.own = (self.factor, torch.zeros(1))
        self.config = TrainConfig(lr=0.001)
        self.halves = halves
        self.steps = 0
        self.sizes: list[int] = []

    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(inputs))
        with torch.no_grad():
            flat.weights[: len(weights)] = weights * self.factor
        outputs: torch.Tensor = flat.module(inputs)
        return outputs

    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans | None:
        assert self.own is not None
        self.own[1][0] = torch.dot(flat.gradient, weights)
        flat.gradient.mul_(self.factor)
        spans = self.halves[self.steps % len(self.halves)]
        self.steps += 1
        return None if spans is None else [(span, flat.gradient[span]) for span in spans]


def client() -> Local:
    setup = tiny_setup(FedAvg())
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    return Local("c1", 0, setup.task, CONFIG, setup.federation.splits["c1"], runner)


def test_a_transform_that_changes_nothing_changes_nothing() -> None:
    local = client()
    still = Halved()
    still.config = TrainConfig(lr=1e-30)
    plain = local.train(local.task.initial)
    transformed = local.train(local.task.initial, transform=still)
    assert np.array_equal(plain.weights, transformed.weights)
    assert np.array_equal(plain.moments.first, transformed.moments.first)
    assert transformed.transform is not None
    assert transformed.transform.step == transformed.moments.step


def test_the_transforms_own_numbers_are_trained_and_the_weights_may_stand_still() -> None:
    local = client()
    halved = Halved(0.5)
    frozen = np.zeros(local.layout.size, np.bool_)
    trained = local.train(local.task.initial, mask=frozen, transform=halved)
    assert np.array_equal(trained.weights, local.task.initial)
    assert halved.factor.item() != 0.5


def test_spans_that_do_not_move_keep_their_weights_and_their_momentum() -> None:
    local = client()
    size, half = local.layout.size, local.layout.size // 2
    first, second = [slice(0, half)], [slice(half, size)]
    config = TrainConfig(batch=4, steps=2, lr=0.05, momentum=0.9, weight_decay=0.01)
    one = local.train(local.task.initial, config, transform=Halved(1.0, [first, second])).weights
    assert not np.array_equal(one[:half], local.task.initial[:half])
    assert not np.array_equal(one[half:], local.task.initial[half:])
    only = local.train(local.task.initial, config, transform=Halved(1.0, [first, first])).weights
    assert np.array_equal(only[half:], local.task.initial[half:]), "neither momentum nor weight decay moves it"
    start = local.train(local.task.initial, TrainConfig(batch=4, steps=1, lr=0.05, momentum=0.9, weight_decay=0.01),
                        transform=Halved(1.0, [first])).weights  # fmt: skip
    assert np.array_equal(one[:half], start[:half]), "the second step does not touch the first half"


def test_batches_of_one_are_left_out_where_a_norm_needs_two() -> None:
    local = client()
    batch = local.examples - 1
    halved = Halved()
    local.train(local.task.initial, TrainConfig(batch=batch), transform=halved)
    assert halved.sizes == [batch]


@pytest.mark.parametrize(
    ("config", "descent"),
    [
        (TrainConfig(), True),
        (TrainConfig(weight_decay=0.1), True),
        (TrainConfig(momentum=0.1), False),
        (TrainConfig(clip=1.0), False),
        (TrainConfig(optimizer="adam"), False),
    ],
)
def test_what_is_plain_gradient_descent(config: TrainConfig, descent: bool) -> None:
    start = np.zeros(3, np.float32)
    job = TrainJob(start, config, iter(()), 0.1, nullcontext())
    assert job.is_descent == descent
    assert replace(job, mask=np.ones(3, np.bool_)).is_descent == descent
    assert not replace(job, proximal=Proximal(start, 0.0)).is_descent
