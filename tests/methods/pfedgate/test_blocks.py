"""How a model is cut into blocks, and the mean of blocks."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Blocks
from sparsona.methods.pfedgate.blocks import Cut, blockwise_mean, equal_split, first_split
from sparsona.models import MODELS

NETS = {"leaf-cnn": ((1, 28, 28), 62, 40), "lenet-cifar": ((3, 32, 32), 10, 50), "cnn-cifar100": ((3, 32, 32), 100, 40)}


def layout_of(net: str) -> Layout:
    shape, outputs, _ = NETS[net]
    return Layout.of(MODELS.get(net)(shape, outputs))


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(800, [160] * 5), (32, [7, 7, 7, 7, 4]), (62, [13, 13, 13, 13, 10]), (3, [1, 1, 1]), (6, [2, 2, 2]), (1, [1])],
)
def test_equal_blocks(size: int, sizes: list[int]) -> None:
    assert equal_split(size, 5) == sizes


@pytest.mark.parametrize("size", [1, 2, 3, 9, 10, 62, 800, 51_200])
@pytest.mark.parametrize("share", [0.1, 0.2])
def test_first_block_is_as_small_as_asked(size: int, share: float) -> None:
    sizes = first_split(size, 5, share)
    assert sum(sizes) == size
    assert len(sizes) <= 5
    assert sizes[0] == (size if size == 1 else max(1, int(share * size + 1e-9)))


@pytest.mark.parametrize("net", NETS)
def test_cut_covers_the_model(net: str) -> None:
    layout = layout_of(net)
    cut = Cut.of(layout, 5)
    assert len(cut) == NETS[net][2]
    assert cut.sizes.sum() == layout.size
    assert sum(cut.first) == len(layout.tensors)
    last = [tensor.size for tensor in layout.tensors if tensor.name.startswith(f"{layout.layers[-1]}.")]
    assert cut.sizes[np.array(cut.output)].sum() == sum(last)


def test_a_single_layer_has_no_output_layer_of_its_own() -> None:
    """Else a linear model would be kept whole whatever its density."""
    assert not any(Cut.of(Layout.of(nn.Linear(4, 2)), 4).output)
    assert not any(Cut.of(Layout.of(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))), 4).output)


def test_a_norm_at_the_end_is_no_output_layer() -> None:
    cut = Cut.of(Layout.of(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.BatchNorm1d(2))), 1)
    assert cut.output == (False, False, True, True, False, False)


def test_mean_by_block_over_those_who_sent_it() -> None:
    """The example of the paper's appendix A: four clients keep {0, 2}, {1, 2}, {0, 1} and {0, 1, 2}."""
    cut = Cut((0, 2, 3, 6), (True, False, False), (True, True, True), (False, False, False))
    kept = [[0, 2], [1, 2], [0, 1], [0, 1, 2]]
    rng, examples = np.random.default_rng(0), np.array([10, 20, 30, 40])
    updates = rng.normal(size=(4, 6)).astype(np.float32)
    replies = []
    for update, blocks, count in zip(updates, kept, examples, strict=True):
        mask = np.isin(np.arange(3), blocks)
        replies.append((float(count), cut.take(update, mask)))
    mean = blockwise_mean(cut, replies)
    for block, senders in enumerate(([0, 2, 3], [1, 2, 3], [0, 1, 3])):
        wanted = np.average(updates[senders][:, cut.span(block)], axis=0, weights=examples[senders])
        assert np.allclose(mean[cut.span(block)], wanted, atol=1e-7)


def test_a_block_that_nobody_sent_is_zero() -> None:
    cut = Cut((0, 2, 3), (True, False), (True, True), (False, False))
    mean = blockwise_mean(cut, [(3.0, Blocks(2, np.array([1]), np.array([5.0], np.float32)))])
    assert mean.tolist() == [0, 0, 5]


def test_blocks_that_do_not_fit_are_refused() -> None:
    cut = Cut((0, 2, 3), (True, False), (True, True), (False, False))
    for part in (Blocks(2, np.array([0]), np.zeros(1, np.float32)), Blocks(3, np.array([0]), np.zeros(2, np.float32))):
        with pytest.raises(WireError, match="do not fit"):
            cut.spread(part)
