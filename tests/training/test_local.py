"""The one training loop, against plain torch."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sparsona.data.dataset import Dataset
from sparsona.errors import Diverged, InputError
from sparsona.federation.setup import Setup
from sparsona.methods.fedavg import FedAvg
from sparsona.privacy.mechanism import Mechanism, Meter
from sparsona.testing import tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner
from sparsona.training.step import Proximal


def local_of(setup: Setup, client: str = "c0", round: int = 0) -> Local:
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    return Local(client, round, setup.task, setup.config, setup.federation.splits[client], runner)


@pytest.fixture
def local() -> Local:
    return local_of(tiny_setup(FedAvg()))


def plain_torch(local: Local, start: np.ndarray, config: TrainConfig) -> np.ndarray:
    """The textbook loop on the same batches."""
    flat = local.runner.flat
    flat.load(start)
    module = flat.module
    module.train()
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[config.optimizer]
    extra = {"momentum": config.momentum} if config.optimizer == "sgd" else {}
    optimizer = kind(module.parameters(), lr=config.lr, weight_decay=config.weight_decay, **extra)
    for indices, _ in local._batches(config, None, "train"):
        inputs, targets = local.runner.batch(indices)
        for _ in range(config.repeats):
            optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(F.cross_entropy(module(inputs), targets))
            if config.clip:
                torch.nn.utils.clip_grad_norm_(module.parameters(), config.clip)
            optimizer.step()
    return flat.read()


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(batch=8, lr=0.1),
        TrainConfig(batch=8, lr=0.1, momentum=0.9, weight_decay=0.01),
        TrainConfig(batch=8, epochs=3, lr=0.05, clip=0.5),
        TrainConfig(batch=8, optimizer="adam", lr=0.01),
        TrainConfig(batch=8, optimizer="adam", lr=0.01, weight_decay=0.1),
        TrainConfig(batch=8, steps=7, lr=0.1),
        TrainConfig(batch=8, repeats=2, lr=0.1),
    ],
)
def test_training_is_the_textbook_loop(local: Local, config: TrainConfig) -> None:
    start = local.task.initial
    trained = local.train(start, config)
    assert np.abs(trained.weights - plain_torch(local, start, config)).max() < 2e-6
    assert np.abs(trained.weights - start).max() > 1e-3


def test_epochs_steps_and_examples_seen(local: Local) -> None:
    n = local.examples
    assert local.train(local.task.initial, TrainConfig(epochs=2, batch=8)).examples == 2 * n
    assert local.train(local.task.initial, TrainConfig(steps=3, batch=4)).examples == 12
    kept = n // 8 * 8
    assert local.train(local.task.initial, TrainConfig(batch=8, drop_last=True)).examples == kept
    assert local.train(local.task.initial, TrainConfig(batch=8, repeats=2)).examples == 2 * n


def test_every_epoch_is_one_pass_in_a_new_order(local: Local) -> None:
    batches = [i for i, _ in local._batches(TrainConfig(epochs=2, batch=5), None, "train")]
    half = len(batches) // 2
    first, second = np.concatenate(batches[:half]), np.concatenate(batches[half:])
    assert sorted(first) == sorted(second) == sorted(local.split.train)
    assert first.tolist() != second.tolist()


def test_streams_rounds_and_clients_have_their_own_order() -> None:
    setup = tiny_setup(FedAvg())

    def order(client: str, round: int, stream: str) -> list[int]:
        local = local_of(setup, client, round)
        positions = {index: i for i, index in enumerate(local.split.train)}
        return [positions[i] for batch, _ in local._batches(TrainConfig(batch=99), None, stream) for i in batch]

    base = order("c0", 0, "train")
    assert base == order("c0", 0, "train")
    assert base != order("c0", 1, "train")
    assert base != order("c0", 0, "personal")


def test_the_mask_stops_weights_completely(local: Local) -> None:
    mask = np.zeros(local.layout.size, np.bool_)
    mask[local.layout["5.weight"].slice] = True
    config = TrainConfig(batch=8, lr=0.1, momentum=0.9, weight_decay=0.1)
    moved = local.train(local.task.initial, config, mask=mask).weights != local.task.initial
    assert moved[mask].all()
    assert not moved[~mask].any()


def test_clipping_counts_only_what_the_mask_lets_through(local: Local) -> None:
    mask = np.zeros(local.layout.size, np.bool_)
    mask[local.layout["5.bias"].slice] = True
    step = (
        local.train(local.task.initial, TrainConfig(steps=1, lr=1.0, clip=1e-3), mask=mask).weights - local.task.initial
    )
    assert np.linalg.norm(step) == pytest.approx(1e-3, rel=2e-3)


def test_the_proximal_term_pulls(local: Local) -> None:
    start = local.task.initial
    free = local.train(start, TrainConfig(batch=8, lr=0.1)).weights
    held = local.train(start, TrainConfig(batch=8, lr=0.1), proximal=Proximal(start, 5.0)).weights
    assert np.linalg.norm(held - start) < 0.6 * np.linalg.norm(free - start)
    # one step from elsewhere: exactly -lr * (gradient + mu * (w - target))
    target = start + 1
    one = TrainConfig(steps=1, batch=10_000, lr=0.1)
    plain, pulled = local.train(start, one).weights, local.train(start, one, proximal=Proximal(target, 2.0)).weights
    assert pulled - plain == pytest.approx(np.full(len(start), 0.1 * 2.0 * 1.0), abs=1e-6)


def test_importance_weighs_examples(local: Local) -> None:
    start, one = local.task.initial, TrainConfig(steps=1, batch=10_000, lr=0.1)
    ones = np.ones(local.examples, np.float32)
    assert np.array_equal(local.train(start, one, importance=ones).weights, local.train(start, one).weights)
    assert np.array_equal(local.train(start, one, importance=0 * ones).weights, start)


def test_the_rate_of_a_round() -> None:
    config = TrainConfig(lr=0.1, decay=0.5, drops=(0.5, 0.75))
    assert [config.rate(t, 4) for t in range(4)] == pytest.approx([0.1, 0.05, 0.0025, 0.000125])


def test_gradient_is_the_mean_over_the_examples(local: Local) -> None:
    start = local.task.initial
    step = local.train(start, TrainConfig(steps=1, batch=10_000, lr=1.0)).weights - start
    assert -local.gradient(start) == pytest.approx(step, abs=1e-5)
    assert not np.array_equal(local.gradient(start, batch=4), local.gradient(start))


def test_divergence_says_who_when_and_what_to_do(local: Local) -> None:
    with pytest.raises(Diverged, match=r"client c0, round 1: .*learning rate 1e\+30: lower it"):
        local.train(local.task.initial, TrainConfig(lr=1e30, epochs=4))


def test_dropout_follows_the_run_and_not_torchs_generator() -> None:
    setup = tiny_setup(FedAvg())
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 4))
    setup = dataclasses.replace(setup, module=module)
    runner = ModelRunner(module, setup.federation.data, setup.objective, setup.task.chance)
    local = Local("c0", 0, setup.task, setup.config, setup.federation.splits["c0"], runner)
    start = runner.flat.read()
    torch.manual_seed(1)
    a = local.train(start).weights
    torch.manual_seed(2)
    assert np.array_equal(local.train(start).weights, a)


def test_images_are_channels_last_and_normalised() -> None:
    for channels in (1, 3):
        inputs = np.full((5, channels, 4, 4), 255, np.uint8)
        data = Dataset("x", inputs, np.zeros(5, np.int64), 2, mean=(0.5,) * channels, std=(0.25,) * channels)
        setup = tiny_setup(FedAvg())
        runner = ModelRunner(
            nn.Sequential(nn.Flatten(), nn.Linear(16 * channels, 2)), data, setup.objective, setup.task.chance
        )
        batch, _ = runner.batch(np.arange(3))
        assert batch.stride() == (16 * channels, 1, 4 * channels, channels)
        assert batch == pytest.approx(torch.full((3, channels, 4, 4), 2.0))


def test_missing_values_are_filled_and_marked() -> None:
    inputs = np.array([[1.0, np.nan], [3.0, 4.0]], np.float32)
    data = Dataset("x", inputs, np.zeros(2, np.int64), 2, mean=(1.0, 0.0), std=(2.0, 4.0))
    setup = tiny_setup(FedAvg())
    runner = ModelRunner(nn.Linear(4, 2), data, setup.objective, setup.task.chance)
    assert runner.batch(np.arange(2))[0].tolist() == [[0, 0, 0, 1], [1, 1, 0, 0]]


def test_batchnorm_skips_a_last_batch_of_one() -> None:
    setup = tiny_setup(FedAvg())
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.BatchNorm1d(4))
    runner = ModelRunner(module, setup.federation.data, setup.objective, setup.task.chance)
    share = setup.federation.splits["c0"]
    share = dataclasses.replace(share, train=share.train[:9])
    local = Local("c0", 0, setup.task, setup.config, share, runner)
    assert local.train(runner.flat.read(), TrainConfig(batch=4)).examples == 8
    alone = Local("c0", 0, setup.task, setup.config, dataclasses.replace(share, train=share.train[:1]), runner)
    nothing = alone.train(runner.flat.read(), TrainConfig(batch=4))
    assert nothing.examples == 0
    assert math.isnan(nothing.loss), "a training that has seen nothing has no loss"
    with pytest.raises(InputError, match="choose a batch of 2 or more"):
        local.train(runner.flat.read(), TrainConfig(batch=1))


def test_stored_order_reads_class_by_class_and_goes_on_in_the_next_round() -> None:
    setup = tiny_setup(FedAvg())
    config = TrainConfig(batch=4, steps=2, order="stored")
    first, second = (local_of(setup, round=r) for r in (0, 1))
    targets, n = first.targets(), first.examples
    per_epoch = -(-n // 4)
    labels = setup.federation.data.targets
    drawn = [np.concatenate([labels[i] for i, _ in local._batches(config, None, "train")]) for local in (first, second)]
    assert drawn[0].tolist() == np.sort(targets)[:8].tolist()
    assert drawn[1].tolist() == np.sort(targets)[8:16].tolist()
    whole = [i for i, _ in first._batches(TrainConfig(batch=4, order="stored"), None, "train")]
    assert len(whole) == per_epoch
    assert labels[np.concatenate(whole)].tolist() == np.sort(targets).tolist(), "an epoch is one pass"
    far = local_of(setup, round=per_epoch)
    assert [i.tolist() for i, _ in far._batches(config, None, "train")] == [i.tolist() for i in whole[:2]]


def test_stored_order_gives_a_step_of_two_batches_two_different_ones(local: Local) -> None:
    config = TrainConfig(batch=4, steps=2, order="stored", lr=0.1)
    one, other = (list(local._batches(config, None, "train", turn=(i, 2))) for i in (0, 1))
    alone = list(local._batches(dataclasses.replace(config, steps=4), None, "train"))
    taken = [one[0][0], other[0][0], one[1][0], other[1][0]]
    assert [i.tolist() for i in taken] == [i.tolist() for i, _ in alone]


def test_stored_order_takes_samples_without_classes_as_they_stand(local: Local) -> None:
    """Such as public samples, whose targets are other models' outputs."""
    public = local.runner.raw.numpy()[:10]
    config = TrainConfig(batch=4, order="stored")
    for targets in (np.random.default_rng(3).random((10, 4), np.float32), np.arange(10, dtype=np.float32)[::-1].copy()):
        other = local.on(public, targets, local.runner.objective)
        assert [i.tolist() for i, _ in other._batches(config, None, "digest")] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    labelled = local.on(public, np.arange(10)[::-1].copy() // 3, local.runner.objective)
    drawn = [i.tolist() for i, _ in labelled._batches(config, None, "digest")]
    assert drawn == [[7, 8, 9, 4], [5, 6, 1, 2], [3, 0]], "classes 0 to 3"


@given(st.integers(1, 90), st.integers(1, 40), st.integers(1, 12), st.booleans(), st.none() | st.integers(1, 9))
def test_no_batch_and_no_rest_of_a_pass_has_fewer_rows_than_the_least(
    rows: int, batch: int, least: int, drop_last: bool, steps: int | None
) -> None:
    """Else the difference of two trainings is the gradient of the few. With one row all is as ever."""
    setup = tiny_setup(FedAvg())
    share = dataclasses.replace(setup.federation.splits["c0"], train=np.arange(rows))
    local = dataclasses.replace(local_of(setup), split=share, least_rows=least)
    config = TrainConfig(batch=max(batch, least), drop_last=drop_last, steps=steps)
    sizes = [len(chosen) for chosen, _ in local._batches(config, None, "train", pairs=False)]
    if least == 1:
        assert max(sizes) <= config.batch
    assert min(sizes) >= min(least, rows)
    seen = 0
    for size in sizes:
        seen += size
        assert rows - seen == 0 or rows - seen >= least
        seen %= rows if rows - seen < config.batch and not (drop_last and rows - seen) else 10**9
        if drop_last and 0 < rows - seen < config.batch:
            seen = 0
    if steps is None and not drop_last:
        assert sum(sizes) == rows


def test_what_counts_few_rows_is_not_computed(local: Local) -> None:
    careful = dataclasses.replace(local, least_rows=5)
    start = local.task.initial
    for config in (TrainConfig(batch=4), TrainConfig(order="stored")):
        with pytest.raises(InputError, match="least_rows=5"):
            careful.train(start, config)
    one = np.full(local.examples, 1e-9)
    one[3] = 1.0
    with pytest.raises(InputError, match="fewer than 5 rows of c0 would count"):
        careful.train(start, importance=one)
    careful.train(start, importance=np.ones(local.examples))
    assert np.array_equal(careful.gradient(start, local.examples - 1), local.gradient(start))
    counts = np.bincount(local.targets(), minlength=local.task.classes)
    found = dataclasses.replace(local, least_rows=int(counts.max())).countable_targets()
    assert set(found.tolist()) == set(np.flatnonzero(counts == counts.max()).tolist())


@pytest.mark.parametrize(("share", "least", "taken"), [(0.8, 1, 0.8), (0.8, 10**6, 1.0), (1.0, 1, 1.0), (1e-9, 1, 0.0)])
def test_some_rows_are_a_share_without_repetition(local: Local, share: float, least: int, taken: float) -> None:
    some = dataclasses.replace(local, least_rows=least).some(share, "w")
    assert some.examples == max(1, int(taken * local.examples))
    assert len(set(some.split.train.tolist()) & set(local.split.train.tolist())) == some.examples
    again, other = local.some(0.5, "w"), dataclasses.replace(local, round=1).some(0.5, "w")
    assert again.split.train.tolist() == local.some(0.5, "w").split.train.tolist() != other.split.train.tolist()


def test_with_a_privacy_budget_each_query_draws_its_own_dropout() -> None:
    """A round that is asked for again gets other queries. All rows are sampled here, and the noise is next to none."""
    setup = tiny_setup(FedAvg())
    module = nn.Sequential(setup.module, nn.Dropout(0.5), nn.Linear(4, 4))
    local = local_of(dataclasses.replace(setup, module=module))
    layout, mechanism = local.runner.layout, Mechanism(clip=1.0, noise=1e-9, rate=1.0, delta=1e-5, most=99)
    start = np.full(layout.size, 0.1, np.float32)

    def trained(used: int) -> np.ndarray:
        meter = Meter(mechanism, local.runner.chance, "c0", local.examples, used)
        return dataclasses.replace(local, meter=meter).train(start, TrainConfig(steps=1, lr=1.0)).weights

    assert np.array_equal(trained(0), trained(0))
    assert np.abs(trained(0) - trained(7)).max() > 1e-3
