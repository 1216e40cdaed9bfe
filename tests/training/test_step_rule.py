"""Every form of the step rule against its torch form: the trainers, the spans of a transform, and own steps.

The reference is the rule itself on gradients of torch's autograd. Whether the rule is the textbook's is the subject of
``test_step.py``. Forms sum in different orders, so they agree to a tolerance, not to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from engine_helpers import perceptron_setup
from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import Dataset
from sparsona.errors import InputError
from sparsona.message import Mask, Vector
from sparsona.methods.fedavg import FedAvg
from sparsona.privacy.mechanism import Mechanism, Meter, Query
from sparsona.training.config import TrainConfig
from sparsona.training.fused import TrainerName
from sparsona.training.job import WeightTransform
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors
from sparsona.training.objective import regression
from sparsona.training.runner import ModelRunner
from sparsona.training.step import GradientSpans, Proximal, StepRule, clipped_sum
from sparsona.training.vector import FlatModule

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.1},
    "momentum": {"lr": 0.1, "momentum": 0.9},
    "adam": {"lr": 0.01, "optimizer": "adam"},
}
CLIPS = {"unclipped": None, "clipped": 0.05, "within": 100.0}
DECAYS = {"": 0.0, "decayed": 0.3}
MASKS = ("", "masked", "full")
PROXIMALS = ("", "pulled", "apart")


@dataclass(frozen=True)
class Case:
    """One combination of the settings that the step rule has."""

    optimizer: str
    clip: str
    decay: str
    mask: str
    proximal: str

    def __str__(self) -> str:
        return "-".join(filter(None, (self.optimizer, self.clip, self.decay, self.mask, self.proximal)))

    @property
    def config(self) -> TrainConfig:
        """Two passes, a last batch that is shorter, two steps per batch."""
        chosen = OPTIMIZERS[self.optimizer]
        return TrainConfig(
            batch=7, epochs=2, repeats=2, clip=CLIPS[self.clip], weight_decay=DECAYS[self.decay], **chosen
        )


TRAINERS: tuple[TrainerName, ...] = ("plain", "fused")
CASES = [Case(*words) for words in product(OPTIMIZERS, CLIPS, DECAYS, MASKS, PROXIMALS)]
TAKEN = [case for case in CASES if case.optimizer == "sgd" and case.proximal != "apart"]
"""The cases that own steps can take: `iterate` has no moments, and a gradient has no step after it."""
SETUP = perceptron_setup(
    FedAvg(),
    clients=3,
    module=nn.Sequential(nn.Flatten(), nn.Linear(36, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)),
)
START = SETUP.task.initial


def local_of(case: Case, trainer: TrainerName, meter: Meter | None = None) -> Local:
    runner = ModelRunner(SETUP.module, SETUP.federation.data, SETUP.objective, SETUP.task.chance, trainer=trainer)
    return Local("c1", 0, SETUP.task, case.config, SETUP.federation.splits["c1"], runner, meter=meter)


def mask_of(case: Case) -> Mask | None:
    share = {"": None, "masked": 0.5, "full": 1.0}[case.mask]
    return None if share is None else np.random.default_rng(0).random(len(START)) < share


def proximal_of(case: Case) -> Proximal | None:
    towards = START + np.random.default_rng(1).normal(0, 0.3, len(START)).astype(np.float32)
    return Proximal(towards, 0.4, case.proximal == "apart") if case.proximal else None


def by_rule(case: Case) -> Vector:
    """The reference: torch's gradient of every batch, and a step of the rule."""
    local = local_of(case, "plain")
    flat = local.runner.flat
    flat.load(START)
    rule = StepRule(flat.weights, case.config, local.rate, mask=mask_of(case), proximal=proximal_of(case))
    for indices, _ in local._batches(case.config, None, "train"):
        inputs, targets = local.runner.batch(indices)
        for _ in range(case.config.repeats):
            flat.gradient.zero_()
            torch.autograd.backward(SETUP.objective.loss(flat.module(inputs), targets).mean())
            with torch.no_grad():
                rule.step(flat.gradient)
    return flat.read()


MECHANISM = Mechanism(clip=0.7, noise=0.3, rate=0.3, delta=1e-5, most=10**6)
"""Some examples' gradients are shorter than its clip, most are longer."""


def metered() -> Meter:
    return Meter(MECHANISM, SETUP.task.chance, "c1", len(SETUP.federation.splits["c1"].train))


def by_private_rule(case: Case) -> Vector:
    """The reference with a privacy budget: torch's gradient of each sampled example by itself, clipped and noised."""
    local, mask, train = local_of(case, "plain"), mask_of(case), SETUP.federation.splits["c1"].train
    flat = local.runner.flat
    flat.load(START)
    rule = StepRule(flat.weights, case.config, local.rate, mask=mask, proximal=proximal_of(case))
    for query in metered().ask(case.config.batches(len(train))):
        total = np.zeros(len(START))
        for row in train[query.sampled]:
            inputs, targets = local.runner.batch(np.array([row]))
            flat.gradient.zero_()
            torch.autograd.backward(SETUP.objective.loss(flat.module(inputs), targets).sum())
            gradient = flat.gradient.numpy().astype(np.float64) * (1.0 if mask is None else mask)
            total += gradient * min(1.0, MECHANISM.clip / float(np.linalg.norm(gradient)))
        answer = (total + query.noise(len(START)) * (1 if mask is None else mask)) / (MECHANISM.rate * len(train))
        with torch.no_grad():
            rule.step(torch.from_numpy(answer.astype(np.float32)))
    return flat.read()


def by_training(
    case: Case, trainer: TrainerName, transform: WeightTransform | None = None, meter: Meter | None = None
) -> Vector:
    local = local_of(case, trainer, meter)
    return local.train(START, mask=mask_of(case), proximal=proximal_of(case), transform=transform).weights


class InSpans(WeightTransform):
    """Changes no weight, and hands out the gradient in three spans."""

    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        flat.weights.data.copy_(weights)
        outputs: torch.Tensor = flat.module(inputs)
        return outputs

    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans:
        cuts = (0, 50, 51, len(weights))
        return [(slice(a, b), flat.gradient[a:b]) for a, b in pairwise(cuts)]


def by_own_steps(case: Case, trainer: TrainerName, meter: Meter | None = None) -> Vector:
    local, mask, proximal = local_of(case, trainer, meter), mask_of(case), proximal_of(case)

    def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
        gradient = batches[0].gradient(vectors[0], mask=mask, proximal=proximal)
        return (vectors[0] - np.float32(local.rate) * gradient,)

    (found,) = local.iterate((START,), step)
    return found


TRAININGS: dict[str, Callable[[Case], Vector]] = {
    "plain trainer": lambda case: by_training(case, "plain"),
    "compiled trainer": lambda case: by_training(case, "fused"),
    "spans of a transform": lambda case: by_training(case, "plain", InSpans()),
}
OWN_STEPS: dict[str, Callable[[Case], Vector]] = {
    "own steps": lambda case: by_own_steps(case, "plain"),
    "own steps, compiled gradients": lambda case: by_own_steps(case, "fused"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_form_takes_the_steps_of_the_rule(case: Case) -> None:
    wanted = by_rule(case)
    forms = TRAININGS | (OWN_STEPS if case in TAKEN else {})
    assert np.abs(wanted - START).max() > 1e-3
    for name, form in forms.items():
        found = form(case)
        assert found == pytest.approx(wanted, abs=2e-5), name
        mask = mask_of(case)
        if mask is not None:
            assert np.array_equal(found[~mask], START[~mask]), name


@pytest.mark.parametrize("case", [case for case in CASES if case.clip != "within"], ids=str)
def test_with_a_privacy_budget_every_form_takes_the_steps_of_the_rule(case: Case) -> None:
    wanted, mask = by_private_rule(case), mask_of(case)
    forms = {str(trainer): by_training(case, trainer, meter=metered()) for trainer in TRAINERS}
    if case in TAKEN:
        forms |= {f"own steps, {trainer}": by_own_steps(case, trainer, metered()) for trainer in TRAINERS}
    assert np.abs(wanted - by_rule(case)).max() > 1e-3
    for name, found in forms.items():
        assert found == pytest.approx(wanted, abs=5e-5), name
        if mask is not None:
            assert np.array_equal(found[~mask], START[~mask]), name


def test_a_row_without_finite_gradient_counts_as_zero() -> None:
    data = replace(SETUP.federation.data, inputs=SETUP.federation.data.inputs.astype(np.float32))
    train = SETUP.federation.splits["c1"].train
    data.inputs[train[0]] = np.inf
    answers = []
    for trainer in TRAINERS:
        runner = ModelRunner(SETUP.module, data, SETUP.objective, SETUP.task.chance, trainer=trainer)
        runner.flat.load(START)
        with_it, without = (runner.answer(rows, next(metered().ask())) for rows in (train[:4], train[1:4]))
        assert with_it.numpy() == pytest.approx(without.numpy(), abs=1e-6)
        answers.append(with_it.numpy())
    assert answers[0] == pytest.approx(answers[1], abs=1e-5)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_query_without_rows_answers_noise_over_the_expected_number(trainer: TrainerName) -> None:
    """A mean over the rows that were drawn would tell how many they are."""
    runner = ModelRunner(SETUP.module, SETUP.federation.data, SETUP.objective, SETUP.task.chance, trainer=trainer)
    runner.flat.load(START)
    train, noise = SETUP.federation.splits["c1"].train, np.arange(len(START), dtype=np.float32)
    query = Query(train[:0], MECHANISM.clip, 4.0, lambda length: noise[:length])
    assert np.array_equal(runner.answer(query.sampled, query).numpy(), noise / 4)
    one, two = (runner.answer(rows, query).numpy() - noise / 4 for rows in (train[:1], train[[0, 0]]))
    assert two == pytest.approx(2 * one, abs=1e-4)
    assert np.abs(one).max() > 0.01


@pytest.mark.parametrize("mask", [None, np.ones(36 * 6 + 6 * 5 + 5 * 4, np.bool_)], ids=["", "masked"])
def test_crafted_weights_do_not_get_a_row_past_the_clip(mask: Mask | None) -> None:
    """Inputs of the second layer whose squares are zero in single precision, times errors that are huge."""
    sizes = (36, 6, 5, 4)
    linear = [nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]
    module = nn.Sequential(nn.Flatten(), linear[0], nn.Tanh(), linear[1], nn.Tanh(), linear[2])
    setup = perceptron_setup(FedAvg(), clients=3, module=module)
    ends = np.cumsum([a * b for a, b in pairwise(sizes)])
    start = np.zeros(ends[-1], np.float32)
    start[: ends[0]], start[ends[1] :] = 1e-24, 1e30 * (1 + np.arange(20) % 3)
    if mask is not None:
        mask = mask.copy()
        mask[0] = False
    for trainer in TRAINERS:
        runner = ModelRunner(module, setup.federation.data, setup.objective, setup.task.chance, trainer=trainer)
        runner.flat.load(start)
        row = setup.federation.splits["c1"].train[:1]
        silent = Query(row, MECHANISM.clip, 1.0, lambda length: np.zeros(length, np.float32))
        norm = float(np.linalg.norm(runner.answer(row, silent, mask).numpy().astype(np.float64)))
        assert norm == pytest.approx(MECHANISM.clip, rel=1e-5), trainer


@pytest.mark.parametrize("mask", [None, np.array([False, True])], ids=["", "masked"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_huge_gradient_is_not_doubled_by_rounding_its_scale(trainer: TrainerName, mask: Mask | None) -> None:
    """With a scale of a few units of the smallest number of single precision, a row added up to twice the clip."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    for size in 10 ** np.linspace(15, 22.7, 60):
        data = Dataset("huge", np.full((4, 1), size, np.float32), np.full((4, 1), -size, np.float32), 0)
        runner = ModelRunner(module, data, regression(), Chance(0), trainer=trainer)
        runner.flat.load(np.ones(2, np.float32))
        silent = Query(np.arange(1), 1.0, 1.0, lambda length: np.zeros(length, np.float32))
        rows = runner.example_gradients(silent.sampled)
        within = None if mask is None else torch.from_numpy(mask).float()
        for answer in (runner.answer(silent.sampled, silent, mask), clipped_sum(rows, 1.0, within)):
            assert float(answer.double().norm()) <= 1 + 1e-6


@pytest.mark.parametrize("form", OWN_STEPS.values(), ids=OWN_STEPS)
@pytest.mark.parametrize("case", [case for case in CASES if case not in TAKEN], ids=str)
def test_own_steps_refuse_what_they_cannot_take(case: Case, form: Callable[[Case], Vector]) -> None:
    with pytest.raises(InputError, match="plain gradient steps" if case.optimizer != "sgd" else "apart"):
        form(case)


@pytest.mark.parametrize("setting", ["optimizer", "clip", "decay", "mask", "proximal"])
def test_every_setting_changes_the_reference(setting: str) -> None:
    """Otherwise the comparison above would compare nothing."""
    plain = Case("sgd", "unclipped", "", "", "")
    others = {"optimizer": "momentum", "clip": "clipped", "decay": "decayed", "mask": "masked", "proximal": "pulled"}
    changed = replace(plain, **{setting: others[setting]})
    assert np.abs(by_rule(changed) - by_rule(plain)).max() > 1e-3
