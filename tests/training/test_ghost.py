"""Ghost clipping against autograd, one example after the other; and the nets that it must not take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.chance import Chance
from sparsona.layout import Layout, parameters_of
from sparsona.training import ghost
from sparsona.training.adapters import adapt

COUNT, CLASSES = 7, 3


class Words(nn.Module):
    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4, padding_idx=padding)
        self.norm = nn.LayerNorm(4)
        self.inner = nn.Linear(4, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(F.relu(self.inner(self.norm(self.embedding(tokens.long())))).mean(1))
        return found


def images() -> nn.Module:
    """Layers of many and of few places, with and without biases; ReLUs that write over what they get."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 40, 3, stride=2, dilation=1), nn.ReLU(inplace=True),
        nn.Conv2d(40, 40, 2, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(160, CLASSES),
    )  # fmt: skip


NETS: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 5), nn.Sigmoid(), nn.Linear(5, CLASSES, bias=False)),
    "images": images,
    "words": lambda: Words(None),
    "padded words": lambda: Words(0),
}


def made(net: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    module = NETS[net]()
    inputs = torch.randint(0, 9, (COUNT, 5)) if "words" in net else torch.randn(COUNT, 2, 8, 8)
    return module, inputs, torch.randint(0, CLASSES, (COUNT,))


def gradients(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    rows = []
    for i in range(len(inputs)):
        loss = F.cross_entropy(module(inputs[i : i + 1]), targets[i : i + 1])
        found = torch.autograd.grad(loss, [parameter for _, parameter in parameters_of(module)])
        rows.append(torch.cat([one.flatten() for one in found]).double())
    return torch.stack(rows)


def by_ghosts(
    module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, most: float, mask: torch.Tensor | None
) -> torch.Tensor:
    layout = Layout.of(module)

    def losses(outputs: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    with torch.no_grad():
        return ghost.clipped_sum(module, layout, inputs, losses, most, mask)


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("net", NETS)
def test_norms_and_sums_are_those_of_autograd_example_by_example(net: str, masked: bool) -> None:
    module, inputs, targets = made(net)
    assert ghost.reason_against(module) == ""
    each = gradients(module, inputs, targets)
    mask = (torch.rand(each.shape[1]) < 0.5).float() if masked else None
    each = each if mask is None else each * mask
    norms = each.norm(dim=1)
    middle = float(norms.median())
    for most in (1e-3, middle, 1e3):
        wanted = (each * (most / norms).clamp(max=1)[:, None]).sum(0)
        found = by_ghosts(module, inputs, targets, most, mask).double()
        assert found.numpy() == pytest.approx(wanted.numpy(), abs=2e-5 * most + 1e-6 * middle)
    for i in range(COUNT):
        clipped = by_ghosts(module, inputs[i : i + 1], targets[i : i + 1], 1e-3, mask)
        assert float(clipped.norm()) == pytest.approx(1e-3, rel=2e-5)


@pytest.mark.parametrize("net", NETS)
def test_an_example_without_finite_gradient_counts_as_zero(net: str) -> None:
    module, inputs, targets = made(net)
    if "words" in net:
        with torch.no_grad():
            module.get_parameter("embedding.weight")[8] = torch.inf
        inputs = inputs % 8
        inputs[0] = 8
    else:
        inputs[0, 0, 0, 0] = torch.nan
    found = by_ghosts(module, inputs, targets, 0.1, None)
    assert found.isfinite().all()
    assert found.numpy() == pytest.approx(by_ghosts(module, inputs[1:], targets[1:], 0.1, None).numpy(), abs=1e-6)


class Calls(nn.Module):
    """A net that does something with its layers which hides examples' gradients, or mixes them."""

    def __init__(self, forward: Callable[[Calls, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self._forward = nn.Linear(4, 4), nn.Linear(4, 4), forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(self, x)


def with_adapters() -> nn.Module:
    return adapt(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (), "2", Chance(0))


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "a BatchNorm1d": lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
    "may mix examples": lambda: Calls(lambda net, x: net.second(net.first(x).mean(0))),
    "mean may mix": lambda: Calls(lambda net, x: net.second(x - x.mean(0, keepdim=True))),
    "not one of a chain": lambda: Calls(lambda net, x: net.second(F.relu(x) + net.first(x))),
    "used twice": lambda: Calls(lambda net, x: net.first(net.first(x))),
    "in no layer": lambda: Calls(lambda net, x: net.first(x)),
    "cannot be traced": lambda: Calls(lambda net, x: net.first(x) if x.sum() > 0 else net.second(x)),
    "a Embedding": lambda: nn.Sequential(nn.Embedding(4, 3, scale_grad_by_freq=True), nn.Linear(3, 2)),
    "a Conv2d": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten()),
    "single layer": lambda: nn.Linear(4, 2),
    "hooks": with_adapters,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_nets_whose_examples_cannot_be_told_apart_are_not_taken(reason: str) -> None:
    assert reason in ghost.reason_against(REFUSED[reason]())


def test_weights_that_are_used_past_their_layer_are_noticed() -> None:
    """Tied weights: the layer's own call would show a part of the gradient only."""
    tied = Calls(lambda net, x: F.linear(net.second(net.first(x)), net.first.weight))
    assert ghost.reason_against(tied) != ""


def test_a_mean_over_the_examples_is_not_one_over_places() -> None:
    for dims, alone in (((2, 3), True), ((0, 2, 3), False), ((-1,), False)):
        net = nn.Sequential(nn.Conv2d(1, 3, 3), Mean(dims))
        assert (ghost.reason_against(net) == "") is alone


class Mean(nn.Module):
    def __init__(self, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.dims)
