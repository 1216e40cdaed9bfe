"""Clients that run in lockstep: each runs until it asks for a training, then all of them are trained together."""

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
from sparsona.training.job import Trained, TrainJob
from sparsona.training.runner import ModelRunner

R = TypeVar("R")


@dataclass(frozen=True)
class PredictJob:
    """A model whose predictions for some samples a client asks for."""

    model: Array
    samples: Indices


class BatchedRunner(ModelRunner):
    """The runner of one client of a group. Where it trains or predicts, it waits until all others ask for the same."""

    def __init__(self, runner: ModelRunner, turn: ClientTurn[Any]) -> None:
        self.__dict__.update(runner.__dict__)
        self._turn = turn

    def train(self, job: TrainJob) -> Trained:
        """Train together with the clients of the group that ask for the same."""
        if job.transform is not None or job.config.augment:
            return super().train(job)
        trained: Trained | Diverged = self._turn.ask(job)
        if isinstance(trained, Diverged):
            raise trained
        self.count(trained.examples, job.mask)
        self.loss = trained.loss
        return trained

    def _answers(self, model: Model, indices: Indices, batch: int) -> Array:
        if not isinstance(model, np.ndarray) or not len(indices):
            return super()._answers(model, indices, batch)
        found: Array = self._turn.ask(PredictJob(model, indices))
        return found


class ClientTurn(Generic[R]):
    """One client's work on a call stack of its own. It pauses where it asks the group for a training or a test."""

    def __init__(self, work: Callable[[ModelRunner], R], runner: ModelRunner) -> None:
        self._stack = greenlet(lambda: work(BatchedRunner(runner, self)))
        self.request: TrainJob | PredictJob | None = None
        self.result: R | None = None

    @property
    def over(self) -> bool:
        """Whether the client's turn has ended."""
        return bool(self._stack.dead)

    def move(self, answer: Any = None) -> None:
        """Resume the client with the answer to its request, until it asks again or ends."""
        given = self._stack.switch(answer) if self._stack else self._stack.switch()
        if self.over:
            self.request, self.result = None, given
        else:
            self.request = given

    def ask(self, request: TrainJob | PredictJob) -> Any:
        """Pause until the group has answered. Called within the turn; the turn's `no_grad` does not reach the group."""
        with torch.enable_grad():
            return self._stack.parent.switch(request)

    def leave(self) -> None:
        """Abandon the turn; its `finally` blocks run."""
        if self._stack:
            self._stack.throw()


class Group:
    """Runs the turns of several clients in lockstep."""

    def __init__(self, runner: ModelRunner, stack: Stack) -> None:
        self._runner = runner
        self._trainer = Trainer(runner, stack)
        runner.count(0)  # finds the cost of a sample once, for all clients

    def run(self, works: Sequence[Callable[[ModelRunner], R]]) -> list[R]:
        """The result of each work, called with a runner of its own. An error in one of them ends all."""
        turns: list[ClientTurn[R]] = [ClientTurn(work, self._runner) for work in works]
        try:
            for turn in turns:
                turn.move()
            while going := [turn for turn in turns if not turn.over]:
                self._serve(going)
        finally:
            for turn in turns:
                turn.leave()
        return [turn.result for turn in turns]  # type: ignore[misc]

    def _serve(self, turns: Sequence[ClientTurn[Any]]) -> None:
        """Answer the turns' requests and resume them."""
        request = operator.attrgetter("request")
        training = [turn for turn in turns if isinstance(turn.request, TrainJob)]
        testing = [turn for turn in turns if isinstance(turn.request, PredictJob)]
        if training:
            for turn, trained in zip(training, self._trainer.train(list(map(request, training))), strict=True):
                turn.move(trained)
        if testing:
            models, samples = zip(*((t.request.model, t.request.samples) for t in testing), strict=True)  # type: ignore[union-attr]
            for turn, answers in zip(testing, self._trainer.answers(models, samples), strict=True):
                turn.move(answers)
