"""Clients that take their turns in lockstep: each runs until it asks for a training, then all are trained."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from greenlet import greenlet

from sparsona.batched.stack import Stack
from sparsona.batched.trainer import Trainer
from sparsona.bench import Bench, Trained, Training
from sparsona.dataset import Array, Indices
from sparsona.errors import Diverged
from sparsona.method import Model

R = TypeVar("R")


@dataclass(frozen=True)
class Testing:
    """Models to be tested together with those of other clients."""

    model: Array
    samples: Indices


class Seat(Bench):
    """The bench as one client of the group sees it: asking for a training lets the others go on until they ask, too."""

    def __init__(self, bench: Bench, turn: Turn[Any]) -> None:
        self.__dict__.update(bench.__dict__)
        self._turn = turn

    def perform(self, training: Training) -> Trained:
        if training.companion is not None or training.recipe.augment:
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

    def __init__(self, work: Callable[[Bench], R], bench: Bench) -> None:
        self._stack = greenlet(lambda: work(Seat(bench, self)))
        self.request: Training | Testing | None = None
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

    def ask(self, request: Training | Testing) -> Any:
        """Called within the turn: wait for what only the group can do, which is none of this turn's `no_grad`."""
        with torch.enable_grad():
            return self._stack.parent.switch(request)

    def leave(self) -> None:
        """End a turn that nobody will go on with, its `finally` blocks included."""
        if self._stack:
            self._stack.throw()


class Group:
    """Runs the turns of a few clients in lockstep."""

    def __init__(self, bench: Bench, stack: Stack) -> None:
        self._bench = bench
        self._trainer = Trainer(bench, stack)
        bench.count(0)  # what a sample costs is found out once, not in every seat

    def run(self, works: Sequence[Callable[[Bench], R]]) -> list[R]:
        """What each of the works returns, called with a bench of its own; an error in one of them ends all."""
        turns: list[Turn[R]] = [Turn(work, self._bench) for work in works]
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
        trainings = [turn for turn in turns if isinstance(turn.request, Training)]
        tests = [turn for turn in turns if isinstance(turn.request, Testing)]
        if trainings:
            for turn, trained in zip(trainings, self._trainer.train(list(map(request, trainings))), strict=True):
                turn.move(trained)
        if tests:
            models, samples = zip(*((t.request.model, t.request.samples) for t in tests), strict=True)  # type: ignore[union-attr]
            for turn, answers in zip(tests, self._trainer.answers(models, samples), strict=True):
                turn.move(answers)
