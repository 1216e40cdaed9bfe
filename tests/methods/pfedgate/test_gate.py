"""The gating layer: SwitchNorm, the choice of blocks, gradients straight through, and the training beside weights."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.methods.pfedgate.blocks import Budget, Cut
from sparsona.methods.pfedgate.gate import Design, Gate, Gated, Gating, SwitchNorm2d, gated
from sparsona.models import MODELS
from sparsona.testing import tiny_setup
from sparsona.training.chain import chain_of
from sparsona.training.config import TrainConfig
from sparsona.training.vector import FlatModule

LEAST = 0.2


def net(bend: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 6, 3), bend(), nn.Flatten(), nn.Linear(96, 10), bend(), nn.Linear(10, 4))


def cut_of(name: str, shape: tuple[int, ...], outputs: int) -> Cut:
    return Cut.of(Layout.of(MODELS.get(name)(shape, outputs)), 5)


def test_switch_norm_is_its_definition() -> None:
    norm = SwitchNorm2d(3)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn_like(parameter))
    x = torch.randn(5, 3, 4, 6) * 2 + 1
    m, v = norm.mean_weight.softmax(0), norm.var_weight.softmax(0)

    def over(*dims: int) -> tuple[torch.Tensor, torch.Tensor]:
        return x.mean(dims, keepdim=True), x.var(dims, unbiased=False, keepdim=True)

    (mean_in, var_in), (mean_ln, var_ln), (mean_bn, var_bn) = over(2, 3), over(1, 2, 3), over(0, 2, 3)
    mean = m[0] * mean_in + m[1] * mean_ln + m[2] * mean_bn
    var = v[0] * var_in + v[1] * var_ln + v[2] * var_bn
    by_channel = (1, 3, 1, 1)
    wanted = (x - mean) / (var + 1e-5).sqrt() * norm.weight.view(by_channel) + norm.bias.view(by_channel)
    assert torch.allclose(norm(x), wanted, atol=1e-5)
    assert torch.allclose(norm.running_mean, 0.1 * mean_bn.flatten(), atol=1e-6)
    assert torch.allclose(norm.running_var, 0.9 + 0.1 * var_bn.flatten(), atol=1e-5)
    norm.eval()
    mean = m[0] * mean_in + m[1] * mean_ln + m[2] * norm.running_mean.view(by_channel)
    var = v[0] * var_in + v[1] * var_ln + v[2] * norm.running_var.view(by_channel)
    wanted = (x - mean) / (var + 1e-5).sqrt() * norm.weight.view(by_channel) + norm.bias.view(by_channel)
    assert torch.allclose(norm(x), wanted, atol=1e-5)


@pytest.mark.parametrize(("paths", "maps"), [("one", 1), ("two", 2)])
@pytest.mark.parametrize(("pool", "features"), [(1, 3072), (4, 192)])
def test_gate_sizes(paths: str, maps: int, pool: int, features: int) -> None:
    gate = Gate(Design((3, 32, 32), 50, paths, pool))  # type: ignore[arg-type]
    assert sum(p.numel() for p in gate.parameters()) == 12 + maps * (50 * features + 50 + 100)


def test_two_paths_start_alike() -> None:
    gate = Gate(Design((1, 6, 6), 15, "two"))
    importance, scale = gate(torch.randn(8, 1, 6, 6))
    assert torch.equal(importance, scale)


@pytest.mark.parametrize("post_norm", [True, False])
def test_scales_start_where_asked_and_importances_at_zero(post_norm: bool) -> None:
    gate = Gate(Design((1, 4, 4), 3, "two", post_norm=post_norm, start=3.0)).train()
    importance, scale = gate.logits(torch.zeros(8, 1, 4, 4))
    assert torch.allclose(scale.mean(0), torch.full((3,), 3.0), atol=1e-4)
    assert torch.allclose(importance.mean(0), torch.zeros(3), atol=1e-4)


def test_the_mean_logit_of_a_training_batch_is_the_norms_bias() -> None:
    gate = Gate(Design((1, 6, 6), 15, "one"))
    bias = gate.scale_norm.bias
    assert isinstance(bias, torch.Tensor)
    with torch.no_grad():
        bias.copy_(torch.randn(15))
    logits, _ = gate.logits(torch.randn(16, 1, 6, 6))
    assert torch.allclose(logits.mean(0), bias, atol=1e-5)


def test_a_table_is_an_image_of_one_channel_and_texts_are_refused() -> None:
    importance, scale = Gate(Design((13,), 7, "two"))(torch.randn(4, 13))
    assert importance.shape == scale.shape == (7,)
    with pytest.raises(InputError, match="not tokens"):
        Gate(Design((13,), 7))(torch.ones(4, 13, dtype=torch.int64))
    with pytest.raises(InputError, match="gate_pool=9"):
        Gate(Design((1, 6, 6), 7, pool=9))


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "at_half", "at_third"),
    [
        ("leaf-cnn", (1, 28, 28), 62, 0.4342, 0.2456),
        ("lenet-cifar", (3, 32, 32), 10, 0.4318, 0.2425),
        ("cnn-cifar100", (3, 32, 32), 100, 0.4355, 0.2474),
    ],
)
def test_achieved_densities(name: str, shape: tuple[int, ...], outputs: int, at_half: float, at_third: float) -> None:
    """Sizes decide, not the gate: the same to four digits for random importances."""
    cut = cut_of(name, shape, outputs)
    rng = np.random.default_rng(0)
    for _ in range(30):
        importance = rng.uniform(0, 1, len(cut)).astype(np.float32)
        for density, wanted in ((0.5, at_half), (0.3, at_third)):
            kept = Budget(density, LEAST).choose(cut, importance)
            assert kept[np.array(cut.first)].all()
            share = cut.sizes[kept].sum() / cut.sizes.sum()
            assert share <= density
            if name == "leaf-cnn":
                assert round(share, 4) == wanted
    first = Budget(0.5, LEAST).choose(cut, np.full(len(cut), 0.5, np.float32))
    assert round(cut.sizes[first].sum() / cut.sizes.sum(), 4) == at_half
    first = Budget(0.3, LEAST).choose(cut, np.full(len(cut), 0.5, np.float32))
    assert round(cut.sizes[first].sum() / cut.sizes.sum(), 4) == at_third


def test_a_tenth_needs_the_papers_split() -> None:
    layout = Layout.of(MODELS.get("lenet-cifar")((3, 32, 32), 10))
    half = np.full(50, 0.5, np.float32)
    equal, paper = Cut.of(layout, 5), Cut.of(layout, 5, 0.1)
    assert 0.2 <= equal.sizes[Budget(0.1, 0.1).choose(equal, half)].sum() / layout.size < 0.201
    kept = Budget(0.1, 0.1).choose(paper, half)
    assert 0.099 < paper.sizes[kept].sum() / layout.size <= 0.1


@pytest.mark.parametrize(("name", "shape", "outputs"), [("leaf-cnn", (1, 28, 28), 62), ("lenet5", (1, 28, 28), 10),
                                                        ("lenet-cifar", (3, 32, 32), 10)])  # fmt: skip
def test_in_the_papers_nets_and_densities_the_whole_output_layer_fits_anyway(
    name: str, shape: tuple[int, ...], outputs: int
) -> None:
    rng, layout = np.random.default_rng(0), Layout.of(MODELS.get(name)(shape, outputs))
    cuts = ((Cut.of(layout, 5), LEAST), (Cut.of(layout, 10), 0.1), (Cut.of(layout, 5, by_channel=True), LEAST))
    for density, (cut, least) in product((0.3, 0.5), cuts):
        for turn in range(20):
            importance = rng.uniform(0, 1, len(cut)).astype(np.float32)
            importance[np.array(cut.output)] *= turn % 2  # not even if the gate thinks nothing of it
            always, by_size = (Budget(density, least, whole_output=w).choose(cut, importance) for w in (True, False))
            assert np.array_equal(always, by_size)


@pytest.mark.parametrize("way", ["greedy", "exact"])
def test_the_output_layer_is_kept_and_takes_its_room_from_the_others(way: Literal["greedy", "exact"]) -> None:
    """In a small net it is a quarter of the model; as the paper has it, classes go."""
    cut = Cut.of(Layout.of(nn.Sequential(nn.Linear(60, 40), nn.Linear(40, 16))), 5)
    output, importance = np.array(cut.output), np.where(cut.output, 0.1, 0.9).astype(np.float32)
    for density in (0.45, 0.5, 0.6):
        whole = Budget(density, LEAST, way, whole_output=True).choose(cut, importance)
        assert whole[output].all()
        assert cut.sizes[whole].sum() <= density * cut.sizes.sum()
        assert not Budget(density, LEAST, way).choose(cut, importance)[output].all()
    small = Cut.of(Layout.of(nn.Sequential(nn.Linear(60, 40), nn.Linear(40, 2))), 5, 0.1)
    tenth = Budget(0.1, 0.1, way, whole_output=True).choose(small, np.ones(len(small), np.float32))
    assert np.array_equal(tenth, np.array(small.output) | np.array(small.first)), "nothing is left to take from"
    assert small.sizes[tenth].sum() < 0.15 * small.sizes.sum()


@pytest.mark.parametrize("way", ["greedy", "exact"])
@pytest.mark.parametrize("density", [0.3, 0.5])
def test_an_output_layer_that_is_half_of_the_net_is_cut_like_the_others(
    way: Literal["greedy", "exact"], density: float
) -> None:
    """convnet2 has 46 % of its weights there: kept whole, it would leave nothing to choose."""
    cut, rng = cut_of("convnet2", (1, 28, 28), 10), np.random.default_rng(0)
    for _ in range(10):
        importance = rng.uniform(0, 1, len(cut)).astype(np.float32)
        asked, not_asked = (Budget(density, LEAST, way, whole_output=w).choose(cut, importance) for w in (True, False))
        assert np.array_equal(asked, not_asked)
        assert cut.sizes[asked].sum() <= density * cut.sizes.sum()


def test_what_the_output_layer_takes_too_much_the_other_layers_give() -> None:
    net = nn.Sequential(nn.Conv2d(4, 8, 5), nn.Flatten(), nn.Linear(8, 20))
    cut = Cut.of(Layout.of(net), 5)
    kept = Budget(0.5, LEAST, "greedy", whole_output=True).choose(cut, np.ones(len(cut), np.float32))
    assert kept[np.array(cut.output)].all()
    assert cut.sizes[kept].sum() <= 0.5 * cut.sizes.sum()


@pytest.mark.parametrize("density", [0.25, 0.3, 0.5, 0.8])
def test_exact_is_worth_at_least_as_much_and_fits(density: float) -> None:
    cut = cut_of("lenet-cifar", (3, 32, 32), 10)
    rng = np.random.default_rng(1)
    for _ in range(5):
        importance = rng.uniform(0, 1, len(cut)).astype(np.float32)
        values = np.rint(10 * importance)
        kept = {k: Budget(density, LEAST, k).choose(cut, importance) for k in ("greedy", "exact")}
        assert all(cut.sizes[mask].sum() <= density * cut.sizes.sum() for mask in kept.values())
        assert values[kept["exact"]].sum() >= values[kept["greedy"]].sum()
        assert all(mask[np.array(cut.first)].all() for mask in kept.values())


def test_density_one_keeps_all_and_scales() -> None:
    cut = Cut.of(Layout.of(net()), 5)
    scale = torch.rand(len(cut))
    kept, found = gated(torch.rand(len(cut)), scale, cut, Budget(1.0, LEAST), "paper")
    assert kept.all()
    assert torch.equal(found, scale)


def surrogate(
    weights: torch.Tensor, importance: torch.Tensor, scale: torch.Tensor, cut: Cut, ste: str, run: nn.Module,
    kept: torch.Tensor, fixed: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The loss whose derivative straight-through pretends to be: `fixed` is the value of G that is not moved."""
    through = importance - fixed
    indicator = kept + through if ste == "paper" else kept * (1 + through)
    each = (scale * indicator).repeat_interleave(torch.from_numpy(cut.sizes))
    whole, named, start = weights * each, {}, 0
    for name, parameter in run.named_parameters():
        named[name] = whole[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    return F.cross_entropy(torch.func.functional_call(run, named, (inputs,)), targets)


@pytest.mark.parametrize("ste", ["paper", "repo"])
@pytest.mark.parametrize("slim", [False, True])
def test_straight_through_gradients_are_those_of_the_surrogate(ste: str, slim: bool) -> None:
    torch.manual_seed(1)
    flat = FlatModule(net())
    cut = Cut.of(flat.layout, 5)
    design, config = Design((1, 6, 6), len(cut), "two"), TrainConfig()
    with torch.no_grad():
        start = FlatModule(Gate(design)).read("all") + 0.1 * np.random.default_rng(3).normal(size=1).astype(np.float32)
    chain = chain_of(flat.module) if slim else None
    gating = Gating(design, cut, Budget(0.5, LEAST), start, config, ste=ste, chain=chain)  # type: ignore[arg-type]
    inputs, targets = torch.randn(12, 1, 6, 6), torch.randint(0, 4, (12,))
    weights = flat.weights.clone()
    flat.gradient.zero_()
    torch.autograd.backward(F.cross_entropy(gating.forward(flat, weights, inputs), targets))
    kept, scale = torch.from_numpy(gating.kept).double(), gating.scale
    gradient_of_scale: list[torch.Tensor] = []
    scale.register_hook(gradient_of_scale.append)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        free = gating.backward(flat, weights)

    module = net().double()
    wide = weights.double().requires_grad_()
    gate = Gate(design)
    FlatModule(gate).load(start, "all")
    gate.double().train()
    importance, mean = gate(inputs.double())
    importance = importance.clamp(min=LEAST)
    loss = surrogate(wide, importance, mean, cut, ste, module, kept, importance.detach(), inputs.double(), targets)
    torch.autograd.backward(loss)
    assert free is not None
    whole, moving = torch.zeros(len(weights)), torch.zeros(len(weights), dtype=torch.bool)
    for span, slope in free:
        whole[span], moving[span] = slope, True
    assert wide.grad is not None
    assert torch.allclose(whole.double(), wide.grad, atol=1e-6)
    tensors = gating.flat.layout.tensors
    slopes = torch.split(gating.flat.gradient, [t.size for t in tensors])
    ours = {t.name: slope for t, slope in zip(tensors, slopes, strict=True)}
    for name, parameter in gate.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(ours[name].double(), parameter.grad.flatten(), atol=1e-6), name
    assert torch.equal(moving, torch.from_numpy(cut.mask(gating.kept)))
    assert (flat.gradient[~moving] == 0).all()

    # and the derivative by M and G themselves against finite differences, where the net has no kinks
    module = net(nn.Tanh).double()
    centre = [importance.detach().clone(), mean.detach().clone()]
    leaves = [value.clone().requires_grad_() for value in centre]
    fixed = (cut, ste, module, kept, centre[0], inputs.double(), targets)
    torch.autograd.backward(surrogate(weights.double(), leaves[0], leaves[1], *fixed))
    for which in (0, 1):
        for block in range(0, len(cut), 3):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [v.clone() for v in centre]
                moved[which][block] += step
                ends.append(surrogate(weights.double(), moved[0], moved[1], *fixed))
            assert leaves[which].grad[block].item() == pytest.approx((ends[0] - ends[1]).item() / 2e-6, abs=1e-7)
    dropped = kept == 0
    if ste == "repo":
        assert (leaves[0].grad[dropped] == 0).all()
    else:
        assert (leaves[0].grad[dropped] != 0).any()
    assert (leaves[1].grad[dropped] == 0).all()


def test_a_block_of_zeros_gives_its_gate_no_gradient() -> None:
    flat = FlatModule(net())
    cut = Cut.of(flat.layout, 5)
    design = Design((1, 6, 6), len(cut), "one")
    gating = Gating(design, cut, Budget(1.0, LEAST), FlatModule(Gate(design)).read("all"), TrainConfig())
    weights = flat.weights.clone()
    weights[cut.span(2)] = 0
    slopes: list[torch.Tensor] = []
    flat.gradient.zero_()
    loss = F.cross_entropy(gating.forward(flat, weights, torch.randn(8, 1, 6, 6)), torch.randint(0, 4, (8,)))
    gating.scale.register_hook(slopes.append)  # type: ignore[no-untyped-call]
    torch.autograd.backward(loss)
    with torch.no_grad():
        gating.backward(flat, weights)
    assert slopes[0][2] == 0
    assert slopes[0][0] != 0


def test_scales_are_between_zero_and_one_and_predictions_follow_them() -> None:
    flat = FlatModule(net())
    cut = Cut.of(flat.layout, 5)
    design = Design((1, 6, 6), len(cut), "one")
    gate = FlatModule(Gate(design)).read("all")
    frozen = np.where(np.array(cut.first), np.float32(0.5), np.float32(0))
    model = Gated(flat.read(), gate, frozen, design, cut, Budget(0.5, LEAST), batch=4)

    def forward(vector: np.ndarray, inputs: torch.Tensor) -> torch.Tensor:
        flat.load(vector)
        scales = np.add.reduceat(np.abs(vector), cut.bounds[:-1]) > 0
        assert cut.sizes[scales].sum() <= 0.5 * cut.bounds[-1]
        with torch.no_grad():
            outputs: torch.Tensor = flat.module(inputs)
        return outputs

    inputs = torch.randn(10, 1, 6, 6)
    assert model.predict(forward, inputs).shape == (10, 4)
    assert torch.equal(model.predict(forward, inputs)[:4], model.predict(forward, inputs[:4]))
    assert np.array_equal(np.flatnonzero(model.vector()), np.flatnonzero(model.weights * cut.mask(frozen > 0)))


def test_blocks_of_the_tiny_net() -> None:
    from sparsona.methods.pfedgate import PFedGate

    setup = tiny_setup(PFedGate())
    assert len(Cut.of(setup.task.layout, 5)) == 27
