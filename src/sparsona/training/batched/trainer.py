"""Many clients' trainings at once: the loop of :mod:`sparsona.training.runner`, on stacked vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sparsona.data.dataset import Array, Indices
from sparsona.errors import Diverged
from sparsona.training.batched.stack import Batch, Stack
from sparsona.training.config import TrainConfig
from sparsona.training.objective import classification
from sparsona.training.optimizer import NONE, Moments
from sparsona.training.runner import SCORE_BATCH, ModelRunner, Trained, TrainJob

FETCH = 2**20
"""How many numbers of inputs are fetched at once."""


@dataclass(frozen=True)
class Kind:
    """What trainings must have in common to be done together."""

    config: TrainConfig
    rate: float
    apart: bool


class Trainer:
    """Trains and tests many clients' models at once on a runner."""

    def __init__(self, runner: ModelRunner, stack: Stack) -> None:
        self._runner = runner
        self._stack = stack
        targets = runner.targets
        self._labels = runner.objective.loss is classification().loss and not bool((targets < 0).any())

    def train(self, trainings: Sequence[TrainJob]) -> list[Trained | Diverged]:
        """The trainings of several clients, whatever they have in common; an answer for each."""
        kinds: dict[Kind, list[int]] = {}
        for i, training in enumerate(trainings):
            apart = training.proximal is not None and training.proximal.apart
            kinds.setdefault(Kind(training.config, training.rate, apart), []).append(i)
        answers: dict[int, Trained | Diverged] = {}
        for kind, members in kinds.items():
            batches = [list(trainings[i].batches) for i in members]
            order = sorted(range(len(members)), key=lambda k: -len(batches[k]))
            ours = [trainings[members[k]] for k in order]
            trained = self._train(kind, ours, [batches[k] for k in order])
            answers |= dict(zip((members[k] for k in order), trained, strict=True))
        return [answers[i] for i in range(len(trainings))]

    def _train(
        self, kind: Kind, trainings: list[TrainJob], batches: list[list[tuple[Indices, Array | None]]]
    ) -> list[Trained | Diverged]:
        """`trainings` come with the longest first, so that those who are still at it are always the first rows."""
        weights = _rows([training.start for training in trainings])
        steps = _Steps(kind, trainings, weights)
        total = torch.zeros(len(trainings))
        streams = [_stream(training) for training in trainings] if self._stack.random else []
        for batch in self._batches(batches, streams):
            active = len(batch.counts)
            for _ in range(kind.config.repeats):
                total[:active] += steps.take(self._stack, weights[:active], batch)
        samples = [kind.config.repeats * sum(len(indices) for indices, _ in own) for own in batches]
        finite = torch.isfinite(weights.sum(1) + total)  # the sum is finite only if all are
        if not finite.all():
            finite = torch.isfinite(weights).all(1) & torch.isfinite(total)
        losses = (total / torch.tensor(samples).clamp(min=1)).tolist()
        return [
            Trained(weights[row].numpy().copy(), losses[row], samples[row], steps.moments(row))
            if finite[row]
            else Diverged(
                f"the loss is {losses[row]:g} after {samples[row]} samples at learning rate {kind.rate:g}: "
                "lower it, or set clip"
            )
            for row in range(len(trainings))
        ]

    def _batches(
        self, batches: Sequence[Sequence[tuple[Indices, Array | None]]], streams: Sequence[torch.Generator]
    ) -> Iterator[Batch]:
        """The clients' batches step by step; several steps' samples are fetched at once."""
        steps = [_Step([own[number] for own in batches if number < len(own)]) for number in range(len(batches[0]))]
        room = max(1, FETCH // math.prod(self._runner.raw.shape[1:]))
        while steps:
            ends = np.cumsum([step.chosen.size for step in steps])
            now = max(1, int(np.searchsorted(ends, room, side="right")))
            inputs, targets = self._runner.batch(np.concatenate([step.chosen.reshape(-1) for step in steps[:now]]))
            for step, stop in zip(steps[:now], ends.tolist(), strict=False):
                place = slice(stop - step.chosen.size, stop)
                yield Batch(
                    inputs[place].reshape(*step.chosen.shape, *inputs.shape[1:]),
                    targets[place],
                    torch.from_numpy(step.scale),
                    torch.from_numpy(step.counts),
                    self._runner.objective,
                    self._labels,
                    streams[: len(step.counts)],
                )
            steps = steps[now:]

    def answers(self, models: Sequence[Array], samples: Sequence[Indices]) -> list[Array]:
        """Each model's predictions for its samples."""
        weights = _rows(models)
        longest = max((len(indices) for indices in samples), default=0)
        parts: list[torch.Tensor] = []
        for start in range(0, longest, SCORE_BATCH):
            width = min(SCORE_BATCH, longest - start)
            chosen = np.zeros((len(samples), width), np.int64)
            for row, indices in enumerate(samples):
                piece = indices[start : start + width]
                chosen[row, : len(piece)] = piece
            inputs, _ = self._runner.batch(chosen.reshape(-1))
            shaped = inputs.reshape(len(samples), width, *inputs.shape[1:])
            parts.append(self._stack.outputs(weights, shaped))
        if not parts:
            return [np.zeros(0, np.float32) for _ in samples]
        outputs = torch.cat(parts, 1)
        predictions = self._runner.objective.predict(outputs.flatten(0, 1)).numpy()
        rows = predictions.reshape(len(samples), longest, *predictions.shape[1:])
        return [row[: len(indices)] for row, indices in zip(rows, samples, strict=True)]


class _Step:
    """Which samples the clients take in one step, in rows that are filled up with samples that do not count."""

    def __init__(self, batches: Sequence[tuple[Indices, Array | None]]) -> None:
        self.counts = np.array([len(indices) for indices, _ in batches])
        shape = len(batches), int(self.counts.max())
        self.chosen = np.empty(shape, np.int64)
        self.scale = np.zeros(shape, np.float32)
        for row, (indices, importance) in enumerate(batches):
            count = len(indices)
            self.chosen[row, :count], self.chosen[row, count:] = indices, indices[0]
            self.scale[row, :count] = (1.0 if importance is None else importance) / np.float32(count)


def _stream(training: TrainJob) -> torch.Generator:
    """A generator of the client's own that gives what torch's would give if it trained alone."""
    with training.seeded:
        return torch.default_generator.clone_state()


def _rows(vectors: Sequence[Array]) -> torch.Tensor:
    return torch.from_numpy(np.stack(vectors).astype(np.float32, copy=False))


class _Steps:
    """What :meth:`ModelRunner.train` does with a gradient, for many clients at once, row by row."""

    def __init__(self, kind: Kind, trainings: Sequence[TrainJob], weights: torch.Tensor) -> None:
        config = kind.config
        self._kind = kind
        self._counts = [training.moments.step if training.moments else 0 for training in trainings]
        self._mask: torch.Tensor | None = None
        if any(training.mask is not None for training in trainings):
            full = np.ones(weights.shape[1], np.bool_)
            self._mask = _rows([full if training.mask is None else training.mask for training in trainings])
        self._towards: torch.Tensor | None = None
        pulls = [training.proximal for training in trainings]
        if any(pull is not None for pull in pulls):
            self._towards = _rows([
                training.start if training.proximal is None else training.proximal.towards for training in trainings
            ])  # fmt: skip
            self._strength = torch.tensor([[0.0 if pull is None else pull.strength] for pull in pulls])
        adam = config.optimizer == "adam"
        self._remembers = adam or config.momentum > 0
        if self._remembers:
            self._first = _memory([t.moments.first if t.moments else NONE for t in trainings], weights)
        if adam:
            self._second = _memory([t.moments.second if t.moments else NONE for t in trainings], weights)
        self._plain = not (self._remembers or config.clip or self._mask is not None or self._towards is not None)
        self._gradient = torch.zeros(0)

    def take(self, stack: Stack, weights: torch.Tensor, batch: Batch) -> torch.Tensor:
        """One step of the first rows; returned are the sums of their losses."""
        kind, config, rows = self._kind, self._kind.config, len(weights)
        for row in range(rows):
            self._counts[row] += 1
        losses = stack.descend(weights, batch, kind.rate, config.weight_decay) if self._plain else None
        if losses is None:
            if not len(self._gradient):
                self._gradient = torch.empty_like(weights)
            gradient = self._gradient[:rows]
            losses = stack.gradient(weights, batch, gradient)
            with torch.no_grad():
                self._apply(weights, gradient)
        return (losses * batch.scale).sum(1) * batch.counts

    def _apply(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        kind, config, rows = self._kind, self._kind.config, len(weights)
        mask = None if self._mask is None else self._mask[:rows]
        towards = None if self._towards is None else self._towards[:rows]
        if towards is not None and not kind.apart:
            gradient.add_((weights - towards).mul_(self._strength[:rows]))
        if mask is not None:
            gradient.mul_(mask)
        if config.clip is not None:
            gradient.mul_((config.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0))
        if config.weight_decay:
            gradient.add_(weights if mask is None else weights * mask, alpha=config.weight_decay)
        if config.optimizer == "adam":
            self._adam(weights, gradient)
        elif self._remembers:
            weights.add_(self._first[:rows].mul_(config.momentum).add_(gradient), alpha=-kind.rate)
        else:
            weights.add_(gradient, alpha=-kind.rate)
        if towards is not None and kind.apart:
            pull = (weights - towards).mul_(self._strength[:rows])
            weights.add_(pull if mask is None else pull.mul_(mask), alpha=-kind.rate)

    def _adam(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        rows = len(weights)
        counts = torch.tensor(self._counts[:rows], dtype=torch.float64).unsqueeze(1)
        first, second = self._first[:rows], self._second[:rows]
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = second.sqrt().div_((1 - 0.999**counts).sqrt().float()).add_(1e-8)
        weights.addcdiv_(first * (-self._kind.rate / (1 - 0.9**counts)).float(), root)

    def moments(self, row: int) -> Moments:
        if not self._remembers:
            return Moments(self._counts[row], NONE, NONE)
        second = self._second[row].numpy().copy() if self._kind.config.optimizer == "adam" else NONE
        return Moments(self._counts[row], self._first[row].numpy().copy(), second)


def _memory(saved: Sequence[Array], like: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(like)
    for row, vector in enumerate(saved):
        if len(vector):
            out[row] = torch.from_numpy(vector)
    return out
