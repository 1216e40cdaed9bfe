"""Clients that take their turns in lockstep: each runs until it asks for a training, then all are trained."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

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


def taken() -> threading.Lock:
    """A lock that somebody must release before it can be acquired: the lightest way to pass the move on."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Turn(Generic[R]):
    """One client's turn, in a thread that runs only while it is this client's move."""

    def __init__(self) -> None:
        self._move = taken()
        self._work: Callable[[Turn[R]], R] | None = None
        self.then: Callable[[], object] = lambda: None
        self.request: Training | Testing | None = None
        self.answer: Any = None
        self.result: R | None = None
        self.error: BaseException | None = None
        self.over = True
        threading.Thread(target=self._live, daemon=True).start()

    def begin(self, work: Callable[[Turn[R]], R]) -> None:
        self._work, self.over, self.request, self.result, self.error = work, False, None, None, None

    def move(self) -> None:
        self._move.release()

    def ask(self, request: Training | Testing) -> Any:
        """Called within the turn: wait for what only the group can do."""
        self.request = request
        self.then()
        self._move.acquire()
        answer, self.answer, self.request = self.answer, None, None
        return answer

    def _live(self) -> None:
        torch.set_num_threads(torch.get_num_threads())
        while True:
            self._move.acquire()
            work = self._work
            if work is None:
                return
            try:
                self.result = work(self)
            except BaseException as error:  # noqa: BLE001  (raised again where the group was started)
                self.error = error
            self.over = True
            self.then()

    def leave(self) -> None:
        self._work = None
        self.move()


class Group:
    """Runs the turns of a few clients in lockstep."""

    def __init__(self, bench: Bench, stack: Stack) -> None:
        self._bench = bench
        self._trainer = Trainer(bench, stack)
        self._back = taken()
        bench.count(0)  # what a sample costs is found out once, not in every seat
        self._turns: list[Turn[Any]] = []

    def run(self, works: Sequence[Callable[[Bench], R]]) -> list[R]:
        """What each of the works returns, called with a bench of its own; the first error, where there are some."""
        turns: list[Turn[R]] = self._turns[: len(works)]
        turns += [Turn() for _ in range(len(works) - len(turns))]
        self._turns = []  # an interrupted group leaves turns that nobody will finish
        for turn, work in zip(turns, works, strict=True):
            turn.begin(_seated(work, self._bench))
        going = turns
        while going:
            for turn, following in zip(going, [*going[1:], None], strict=True):
                turn.then = following.move if following else self._back.release
            going[0].move()
            self._back.acquire()
            going = [turn for turn in going if not turn.over]
            self._serve(going)
        self._turns = list(turns)
        for turn in turns:
            if turn.error is not None:
                raise turn.error
        return [turn.result for turn in turns]  # type: ignore[misc]

    def _serve(self, turns: Sequence[Turn[Any]]) -> None:
        trainings = [turn for turn in turns if isinstance(turn.request, Training)]
        tests = [turn for turn in turns if isinstance(turn.request, Testing)]
        request = operator.attrgetter("request")
        if trainings:
            for turn, trained in zip(trainings, self._trainer.train(list(map(request, trainings))), strict=True):
                turn.answer = trained
        if tests:
            models, samples = zip(*((t.request.model, t.request.samples) for t in tests), strict=True)  # type: ignore[union-attr]
            for turn, answers in zip(tests, self._trainer.answers(models, samples), strict=True):
                turn.answer = answers


def _seated(work: Callable[[Bench], R], bench: Bench) -> Callable[[Turn[R]], R]:
    return lambda turn: work(Seat(bench, turn))
