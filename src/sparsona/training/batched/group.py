"""Clients that take their turns in lockstep: each runs until it asks for a training, then all are trained."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from greenlet import greenlet

from sparsona.data.dataset import Array, Indices
from sparsona.errors import Diverged
from sparsona.method import Model
from sparsona.training.batched.stack import Stack
from sparsona.training.batched.trainer import Trainer
from sparsona.training.runner import ModelRunner, Trained, TrainJob

R = TypeVar("R")


@dataclass(frozen=True)
class Testing:
    """Models to be tested together with those of other clients."""

    model: Array
    samples: Indices


class Seat(ModelRunner):
    """The runner as one client of the group sees it: asking for a training lets the others go on until they ask."""

    def __init__(self, runner: ModelRunner, turn: Turn[Any]) -> None:
        self.__dict__.update(runner.__dict__)
        self._turn = turn

    def perform(self, training: TrainJob) -> Trained:
        if training.transform is not None or training.config.augment:
            return super().perform(training)
        trained: Trained | Diverged = self._turn.ask(training)
        if isinstance(trained, Diverged):
            raise trained
        self.count(trained.examples, training.mask)
        self.loss = trained.loss
        return trained

    def _answers(self, model: Model, indices: Indices, batch: int) -> Array:
        if not isinstance(model, np.ndarray) or not len(indices):
            return super()._answers(model, indices, batch)
        found: Array = self._turn.ask(Testing(model, indices))
        return found


class Turn(Generic[R]):
    """One client's turn, on a stack of its own: it stops where it asks for what only the group can do."""

    def __init__(self, work: Callable[[ModelRunner], R], runner: ModelRunner) -> None:
        self._stack = greenlet(lambda: work(Seat(runner, self)))
        self.request: TrainJob | Testing | None = None
        self.result: R | None = None

    @property
    def over(self) -> bool:
        return bool(self._stack.dead)

    def move(self, answer: Any = None) -> None:
        """Let the client go on, with the answer to what it asked for, until it asks again or ends."""
        given = self._stack.switch(answer) if self._stack else self._stack.switch()
        if self.over:
            self.request, self.result = None, given
        else:
            self.request = given

    def ask(self, request: TrainJob | Testing) -> Any:
        """Called within the turn: wait for what only the group can do, which is none of this turn's `no_grad`."""
        with torch.enable_grad():
            return self._stack.parent.switch(request)

    def leave(self) -> None:
        """End a turn that nobody will go on with, its `finally` blocks included."""
        if self._stack:
            self._stack.throw()


class Group:
    """Runs the turns of a few clients in lockstep."""

    def __init__(self, runner: ModelRunner, stack: Stack) -> None:
        self._runner = runner
        self._trainer = Trainer(runner, stack)
        runner.count(0)  # what a sample costs is found out once, not in every seat

    def run(self, works: Sequence[Callable[[ModelRunner], R]]) -> list[R]:
        """What each of the works returns, called with a runner of its own; an error in one of them ends all."""
        turns: list[Turn[R]] = [Turn(work, self._runner) for work in works]
        try:
            for turn in turns:
                turn.move()
            while going := [turn for turn in turns if not turn.over]:
                self._serve(going)
        finally:
            for turn in turns:
                turn.leave()
        return [turn.result for turn in turns]  # type: ignore[misc]

    def _serve(self, turns: Sequence[Turn[Any]]) -> None:
        """Do what the turns ask for, and let them go on."""
        request = operator.attrgetter("request")
        trainings = [turn for turn in turns if isinstance(turn.request, TrainJob)]
        tests = [turn for turn in turns if isinstance(turn.request, Testing)]
        if trainings:
            for turn, trained in zip(trainings, self._trainer.train(list(map(request, trainings))), strict=True):
                turn.move(trained)
        if tests:
            models, samples = zip(*((t.request.model, t.request.samples) for t in tests), strict=True)  # type: ignore[union-attr]
            for turn, answers in zip(tests, self._trainer.answers(models, samples), strict=True):
                turn.move(answers)
