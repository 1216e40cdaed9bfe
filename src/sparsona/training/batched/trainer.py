"""Many clients' trainings at once: the loop of :mod:`sparsona.training.runner` on stacked vectors."""

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
from sparsona.training.job import Trained, TrainJob
from sparsona.training.objective import classification
from sparsona.training.optimizer import EMPTY, row_number
from sparsona.training.runner import SCORE_BATCH, ModelRunner
from sparsona.training.step import Pull, StepRule

FETCH = 2**20
"""How many numbers of inputs are fetched at once."""


@dataclass(frozen=True)
class SharedSettings:
    """What jobs must have in common to be trained together."""

    config: TrainConfig
    rate: float
    apart: bool

    @classmethod
    def of(cls, job: TrainJob) -> SharedSettings:
        """The settings of one training."""
        return cls(job.config, job.rate, job.proximal is not None and job.proximal.apart)


class Trainer:
    """Trains and tests many clients' models at once on a runner."""

    def __init__(self, runner: ModelRunner, stack: Stack) -> None:
        self._runner = runner
        self._stack = stack
        targets = runner.targets
        self._labels = runner.objective.loss is classification().loss and not bool((targets < 0).any())

    def train(self, jobs: Sequence[TrainJob]) -> list[Trained | Diverged]:
        """The outcome of each client's job. Jobs with the same settings are trained together."""
        alike: dict[SharedSettings, list[int]] = {}
        for i, job in enumerate(jobs):
            alike.setdefault(SharedSettings.of(job), []).append(i)
        outcomes: dict[int, Trained | Diverged] = {}
        for settings, members in alike.items():
            batches = [list(jobs[i].batches) for i in members]
            order = sorted(range(len(members)), key=lambda k: -len(batches[k]))
            trained = self._train(settings, [jobs[members[k]] for k in order], [batches[k] for k in order])
            outcomes |= dict(zip((members[k] for k in order), trained, strict=True))
        return [outcomes[i] for i in range(len(jobs))]

    def _train(
        self, settings: SharedSettings, jobs: list[TrainJob], batches: list[list[tuple[Indices, Array | None]]]
    ) -> list[Trained | Diverged]:
        """Train jobs that are sorted by their number of batches, most first: the first rows are always at work."""
        weights = _rows([job.start for job in jobs])
        rule, gradient = _rule(settings, jobs, weights), torch.empty_like(weights)
        total = torch.zeros(len(jobs))
        streams = [_stream(job) for job in jobs] if self._stack.random else []
        for batch in self._batches(batches, streams):
            rows = len(batch.counts)
            for _ in range(settings.config.repeats):
                total[:rows] += self._step(settings, rule, weights[:rows], gradient[:rows], batch)
        seen = [settings.config.repeats * sum(len(indices) for indices, _ in own) for own in batches]
        finite = torch.isfinite(weights.sum(1) + total)  # the sum is finite only if all are
        if not finite.all():
            finite = torch.isfinite(weights).all(1) & torch.isfinite(total)
        losses = (total / torch.tensor(seen).clamp(min=1)).tolist()
        return [
            Trained(weights[row].numpy().copy(), losses[row], seen[row], rule.moments(row))
            if finite[row]
            else job.diverged(losses[row], seen[row])
            for row, job in enumerate(jobs)
        ]

    def _step(
        self,
        settings: SharedSettings,
        rule: StepRule,
        weights: torch.Tensor,
        gradient: torch.Tensor,
        batch: Batch,
    ) -> torch.Tensor:
        """Take one step of the first rows; return the sums of their losses before it."""
        losses = None
        if rule.is_descent:
            losses = self._stack.descend(weights, batch, settings.rate, settings.config.weight_decay)
        if losses is not None:
            rule.count(len(weights))
        else:
            losses = self._stack.gradient(weights, batch, gradient)
            with torch.no_grad():
                rule.step(gradient)
        return (losses * batch.scale).sum(1) * batch.counts

    def _batches(
        self, batches: Sequence[Sequence[tuple[Indices, Array | None]]], streams: Sequence[torch.Generator]
    ) -> Iterator[Batch]:
        """The clients' batches step by step; several steps' samples are fetched at once."""
        steps = [_Samples([own[number] for own in batches if number < len(own)]) for number in range(len(batches[0]))]
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


class _Samples:
    """The samples of one step, a row for each client, filled up to the same length with samples that do not count."""

    def __init__(self, batches: Sequence[tuple[Indices, Array | None]]) -> None:
        self.counts = np.array([len(indices) for indices, _ in batches])
        shape = len(batches), int(self.counts.max())
        self.chosen = np.empty(shape, np.int64)
        self.scale = np.zeros(shape, np.float32)
        for row, (indices, importance) in enumerate(batches):
            count = len(indices)
            self.chosen[row, :count], self.chosen[row, count:] = indices, indices[0]
            self.scale[row, :count] = (1.0 if importance is None else importance) / np.float32(count)


def _stream(job: TrainJob) -> torch.Generator:
    """A generator of the client's own that draws what torch's generator would draw if the client trained alone."""
    with job.seeded:
        return torch.default_generator.clone_state()


def _rows(vectors: Sequence[Array]) -> torch.Tensor:
    return torch.from_numpy(np.stack(vectors).astype(np.float32, copy=False))


def _rule(settings: SharedSettings, jobs: Sequence[TrainJob], weights: torch.Tensor) -> StepRule:
    """The step rule of several clients' trainings, a row for each."""
    mask = None
    if not all(job.mask is None or job.mask.all() for job in jobs):  # full masks need no product with the gradient
        full = np.ones(weights.shape[1], np.bool_)
        mask = _rows([full if job.mask is None else job.mask for job in jobs])
    pull = None
    if any(job.proximal is not None for job in jobs):
        towards = _rows([job.start if job.proximal is None else job.proximal.towards for job in jobs])
        strength = row_number([0.0 if job.proximal is None else job.proximal.strength for job in jobs])
        pull = Pull(towards, strength, settings.apart)
    saved = [job.moments or EMPTY for job in jobs]
    return StepRule(weights, settings.config, settings.rate, mask=mask, pull=pull, saved=saved)
