"""ERK against the numbers of FedSpa's tables."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona.layout import Layout
from sparsona.methods.fedspa.erk import active_counts, erk
from sparsona.models import MODELS

NETS = {"lenet5": ((1, 28, 28), 26), "vgg11-gn": ((3, 32, 32), 10), "resnet18-gn": ((3, 32, 32), 100)}
ROUNDS = {"lenet5": 400, "vgg11-gn": 1000, "resnet18-gn": 1000}


def layout_of(net: str) -> Layout:
    return Layout.of(MODELS.get(net)(*NETS[net]))


def gigabytes(net: str, numbers: int) -> float:
    """The paper's communication column: ten clients a round, both ways, four bytes a number."""
    return ROUNDS[net] * 10 * 2 * numbers * 4 / 1e9


@pytest.mark.parametrize(
    ("net", "active", "size", "densities"),
    [
        ("lenet5", 219_547, 439_096, {"conv1": 1, "conv2": 0.4764, "fc3": 0.4839, "fc4": 1}),
        (
            "vgg11-gn",
            4_615_554,
            9_231_114,
            {"conv1": 1, "conv2": 1, "conv3": 1, "conv4": 0.8481, "conv5": 0.6336}
            | {"conv6": 0.4216, "conv7": 0.4216, "conv8": 0.4216, "fc1": 1},
        ),
        (
            "resnet18-gn",
            5_610_061,
            11_220_132,
            {"conv1": 1, "layer2.1.conv2": 1, "layer3.0.conv1": 1, "layer3.0.conv2": 0.716, "layer3.1.conv1": 0.716}
            | {"layer3.1.conv2": 0.716, "layer4.0.conv1": 0.5349, "layer4.0.conv2": 0.3559, "layer4.1.conv1": 0.3559}
            | {"layer4.1.conv2": 0.3559, "layer4.0.shortcut.0": 1, "fc1": 1},
        ),
    ],
)
def test_the_papers_nets_to_the_count(net: str, active: int, size: int, densities: dict[str, float]) -> None:
    layout = layout_of(net)
    counts = active_counts(layout, 0.5)
    assert (sum(counts), layout.size) == (active, size)
    by_name = {t.name: count / t.size for t, count in zip(layout.tensors, counts, strict=True)}
    for name, density in densities.items():
        assert by_name[f"{name}.weight"] == pytest.approx(density, abs=6e-5)
    assert all(by_name[t.name] == 1 for t in layout.tensors if len(t.shape) == 1)
    shares = erk([t.shape for t in layout.tensors], 0.5)
    assert counts == [int(share * t.size) for share, t in zip(shares, layout.tensors, strict=True)]


@pytest.mark.parametrize(
    ("net", "dense", "sparse"),
    [("lenet5", 14.1, 7.0), ("vgg11-gn", 738.5, 369.2), ("resnet18-gn", 897.6, 448.8)],
)
def test_the_papers_communication_column(net: str, dense: float, sparse: float) -> None:
    layout = layout_of(net)
    assert round(gigabytes(net, layout.size), 1) == dense
    assert round(gigabytes(net, sum(active_counts(layout, 0.5))), 1) == sparse
    assert round(gigabytes(net, layout.size) * 0.75, 1) == {14.1: 10.5, 738.5: 553.9, 897.6: 673.2}[dense]


@pytest.mark.parametrize(
    ("sparsity", "printed"), [(0.2, 718.1), (0.4, 538.6), (0.5, 448.8), (0.6, 359.0), (0.8, 179.5)]
)
def test_the_papers_sparsity_table(sparsity: float, printed: float) -> None:
    assert round(gigabytes("resnet18-gn", sum(active_counts(layout_of("resnet18-gn"), 1 - sparsity))), 1) == printed


def test_one_dimensional_tensors_can_be_left_out() -> None:
    layout = layout_of("resnet18-gn")
    counts = active_counts(layout, 0.5, mask_1d=False)
    assert round(gigabytes("resnet18-gn", sum(counts)), 1) == 449.2
    flat = active_counts(layout, 0.5, uniform=True, mask_1d=False)
    assert all(c == (t.size if len(t.shape) == 1 else t.size // 2) for c, t in zip(flat, layout.tensors, strict=True))


def test_uniform_gives_every_tensor_the_same_density() -> None:
    layout = layout_of("lenet5")
    assert active_counts(layout, 0.3, uniform=True) == [int(0.3 * t.size) for t in layout.tensors]


@pytest.mark.parametrize("density", [0.001, 0.05, 0.3, 0.77, 0.999, 1.0])
def test_densities_lie_between_0_and_1_and_keep_the_whole(density: float) -> None:
    shapes = [(20, 1, 5, 5), (20,), (50, 20, 5, 5), (50,), (500, 800), (500,), (26, 500), (26,), (), (1, 1)]
    sizes = np.array([int(np.prod(shape)) for shape in shapes])
    shares = np.array(erk(shapes, density))
    assert ((shares > 0) & (shares <= 1)).all()
    assert (shares * sizes).sum() == pytest.approx(density * sizes.sum(), rel=1e-9)
    if density == 1:
        assert (shares == 1).all()


def test_buffers_are_no_part_of_the_mask() -> None:
    from torch import nn

    layout = Layout.of(nn.Sequential(nn.Linear(30, 20), nn.BatchNorm1d(20)))
    assert active_counts(layout, 0.1, uniform=True) == [60, 2, 2, 2]
