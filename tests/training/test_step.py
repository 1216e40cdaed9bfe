"""The step rule against numpy in float64."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsona.message import Mask, Vector
from sparsona.ops.moments import EMPTY
from sparsona.training.config import TrainConfig
from sparsona.training.step import Adam, Proximal, Sgd, StepRule, clip

Exact = npt.NDArray[np.float64]
RATE = 0.1
SIZE = 61
"""Neither a multiple of a vector register nor shorter than one."""


@dataclass(frozen=True)
class Case:
    """One client: its weights, the gradient at each step, its mask and its proximal term."""

    start: torch.Tensor
    gradients: torch.Tensor
    mask: Mask
    towards: Vector
    strength: float


def case(seed: int, steps: int = 3) -> Case:
    generator = torch.Generator().manual_seed(seed)
    start, towards = torch.randn(2, SIZE, generator=generator)
    mask = (torch.rand(SIZE, generator=generator) < 0.5).numpy()
    return Case(start, torch.randn(steps, SIZE, generator=generator), mask, towards.numpy(), 0.3 + seed)


def by_hand(one: Case, config: TrainConfig, masked: bool, pulled: bool, apart: bool) -> Exact:
    """The textbook, in float64: pull, mask, clip, decay, optimiser, and the pull that is a step of its own."""
    w, towards = one.start.double().numpy().copy(), one.towards.astype(np.float64)
    mask = one.mask.astype(np.float64) if masked else np.ones(SIZE)
    first, second = np.zeros(SIZE), np.zeros(SIZE)
    for t, given_gradient in enumerate(one.gradients.double().numpy(), 1):
        g = given_gradient.copy()
        if pulled and not apart:
            g += one.strength * (w - towards)
        g *= mask
        if config.clip is not None:
            g *= min(1.0, config.clip / (float(np.sqrt((g * g).sum())) + 1e-6))
        g += config.weight_decay * w * mask
        if config.optimizer == "adam":
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g * g
            w -= RATE * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        else:
            first = config.momentum * first + g
            w -= RATE * first
        if pulled and apart:
            w -= RATE * one.strength * (w - towards) * mask
    return w


def by_rule(one: Case, config: TrainConfig, mask: Mask | None, proximal: Proximal | None) -> torch.Tensor:
    weights = one.start.clone()
    rule = StepRule(weights, config, RATE, mask=mask, proximal=proximal)
    for gradient in one.gradients:
        rule.step(gradient.clone())
    return weights


CONFIGS = [
    TrainConfig(**optimizer, clip=bound, weight_decay=decay)  # type: ignore[arg-type]
    for optimizer, bound, decay in product(
        ({}, {"momentum": 0.9}, {"optimizer": "adam"}), (None, 2.0, 100.0), (0.0, 0.05)
    )
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("pulled", "apart"), [(False, False), (True, False), (True, True)])
def test_a_step_is_the_textbooks(config: TrainConfig, masked: bool, pulled: bool, apart: bool) -> None:
    one = case(0)
    pull = Proximal(one.towards, one.strength, apart) if pulled else None
    found = by_rule(one, config, one.mask if masked else None, pull)
    assert np.abs(found.double().numpy() - by_hand(one, config, masked, pulled, apart)).max() < 1e-6
    if masked:
        assert torch.equal(found[torch.from_numpy(~one.mask)], one.start[torch.from_numpy(~one.mask)])


@pytest.mark.parametrize("config", CONFIGS)
def test_moments_go_on_where_they_stopped(config: TrainConfig) -> None:
    one = case(0)
    whole, halves, saved = one.start.clone(), one.start.clone(), EMPTY
    rule = StepRule(whole, config, RATE, mask=one.mask)
    for gradient in one.gradients:
        rule.step(gradient.clone())
        part = StepRule(halves, config, RATE, mask=one.mask, saved=saved)
        part.step(gradient.clone())
        saved = part.moments()
    assert torch.equal(whole, halves)
    assert saved.step == rule.moments().step == len(one.gradients)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("apart", [False, True])
def test_a_full_mask_is_no_mask(config: TrainConfig, apart: bool) -> None:
    """To the bit, on every instruction set: a mask adds multiplications by one to the same operations."""
    one = case(0)
    pull = Proximal(one.towards, one.strength, apart)
    assert torch.equal(by_rule(one, config, np.ones(SIZE, np.bool_), pull), by_rule(one, config, None, pull))


@given(st.integers(1, 70), st.floats(0.01, 100), st.integers(0, 2**32 - 1))
def test_clipping_bounds_the_norm_and_keeps_the_direction(size: int, most: float, seed: int) -> None:
    for scale in (0.01, 1.0, 100.0):
        vector = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale
        clipped = vector.clone()
        clip([clipped], most)
        norm = np.linalg.norm(vector.double().numpy())
        expected = vector.double().numpy() * np.minimum(1.0, most / (norm + 1e-6))
        assert clipped.double().numpy() == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_spans_are_clipped_by_their_common_norm_and_keep_their_own_moments() -> None:
    config = TrainConfig(momentum=0.5, clip=1.0, weight_decay=0.1)
    cuts = (slice(0, 20), slice(20, SIZE))
    one = case(0)
    whole, parts = one.start.clone(), one.start.clone()
    pull = Proximal(one.towards, one.strength)
    rule = StepRule(whole, config, RATE, mask=one.mask, proximal=pull)
    by_spans = StepRule(parts, config, RATE, mask=one.mask, proximal=pull)
    for gradient in one.gradients:
        rule.step(gradient.clone())
        by_spans.step_spans([(cut, gradient[cut].clone()) for cut in cuts])
    assert (whole - parts).abs().max() < 1e-6
    still = parts.clone()
    by_spans.step_spans([(cuts[1], one.gradients[0][cuts[1]].clone())])
    assert torch.equal(parts[cuts[0]], still[cuts[0]])
    assert not torch.equal(parts[cuts[1]], still[cuts[1]])


def test_a_plain_step_is_one_axpy_in_place() -> None:
    weights = torch.zeros(3)
    rule = StepRule(weights, TrainConfig(), RATE)
    gradient = torch.ones(3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        rule.step(gradient)
    assert [event.key for event in profile.key_averages() if event.key.startswith("aten::")] == ["aten::add_"]
    assert torch.equal(gradient, torch.ones(3))


def test_moving_spans_holds_no_moments_of_the_whole_vector() -> None:
    """A sliced step is small only if nothing beside it is as long as the model."""
    weights, gradient = torch.zeros(1000), torch.ones(10)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        StepRule(weights, TrainConfig(momentum=0.9), RATE).step_spans([(slice(0, 10), gradient)])
    assert 0 < sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages()) < 4 * 1000


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
