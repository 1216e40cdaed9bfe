"""A client's turn, the same in every engine: bytes in, a state, bytes out, and what was measured on the way."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
from torch import nn

from sparsona.data.dataset import ClientSplit, Federation
from sparsona.message import Message, Stamp, paper_bytes
from sparsona.method import ClientId, Fit, Method, Model, Task
from sparsona.runs.state import digest
from sparsona.training.batched import Group, Stack, stack_of
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.objective import Objective
from sparsona.training.runner import ModelRunner
from sparsona.wire import DecodeCache, Frame, Limit, PackingName, decode, encode


@dataclass(frozen=True)
class Setup:
    """One experiment, resolved: all that a worker needs to run any client of it."""

    method: Method[Any, Any]
    task: Task
    federation: Federation
    module: nn.Module
    objective: Objective
    config: TrainConfig
    device: str = "cpu"
    trainer: Literal["plain", "batched"] = "plain"
    packing: PackingName = "tight"

    def limit(self) -> Limit:
        return Limit(self.method.max_numbers(self.task))


@dataclass(frozen=True)
class Scores:
    """A model on the client's own test and validation samples; NaN where there are none."""

    test: float
    validation: float


@dataclass(frozen=True)
class Scored:
    """A model that was measured before, by its digest: it need not be measured again."""

    digest: bytes
    scores: Scores


@dataclass(frozen=True)
class Job:
    """One turn of one client.

    `fit` is a turn of the protocol; `trial` the same for an evaluation, after which the client forgets it; `personal`
    evaluates the model that the client would have now; `adapt` is what a client does that joins at the end.
    """

    kind: Literal["fit", "trial", "personal", "adapt"]
    client: ClientId
    stamp: Stamp
    down: bytes
    score: bool = False
    fine_tune: bool = False
    keep_model: bool = False
    known: tuple[Scored, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a turn gave. The scores are by evaluation point: pre, post, ft. `flops` counts the method's own work,
    `samples` those that it trained on, once for every pass."""

    job: Job
    frame: Frame
    paper: int
    scores: dict[str, Scores]
    loss: float
    seconds: float
    flops: int = 0
    samples: float = 0.0
    model: Model | None = None
    known: tuple[Scored, ...] = ()


WINDOW, PARTS = 64, 4


def groups(jobs: Iterable[Job], setup: Setup) -> Iterator[tuple[Job, ...]]:
    """Who takes a turn with whom, made as it is asked for: nobody with anybody, unless the trainer is batched.

    Then of every 64 jobs a quarter each: few enough that some workers have something to do, the same for any number
    of them.
    """
    several = iter(jobs)
    if setup.trainer == "plain":
        yield from ((job,) for job in several)
        return
    while window := tuple(islice(several, WINDOW)):
        size = -(-len(window) // PARTS)
        yield from (window[start : start + size] for start in range(0, len(window), size))


class Worker:
    """Runs clients' turns, one after another, on one runner."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance, setup.device)
        self.limit = setup.limit()
        self._seen = DecodeCache()
        self._group: Group | None = None
        if setup.trainer == "batched":
            stack = stack_of(setup.module)
            self._group = Group(self.runner, stack) if isinstance(stack, Stack) else None

    def run(self, job: Job, state: Any, runner: ModelRunner | None = None) -> tuple[Any, Outcome]:
        """The client's state after the turn, and its outcome."""
        began = time.perf_counter()
        runner = runner or self.runner
        setup, method = self.setup, self.setup.method
        share = setup.federation.splits[job.client]
        local = Local(job.client, job.stamp.round, setup.task, setup.config, share, runner)
        down = decode(job.down, self.limit, setup.task.layout.lengths, self._seen)
        if not job.down:
            down = down.stamped(job.stamp)
        meter = Meter(runner, share, job.known if self._group is None else None)
        scores: dict[str, Scores] = {}
        fit: Fit[Any] | None = None
        kept: Model | None = None
        runner.loss = float("nan")
        if job.kind in ("personal", "adapt"):
            kept = method.personal_model(state, down, local)
            if job.score:
                scores["pre"] = meter.scores(kept)
            if job.fine_tune and isinstance(kept, np.ndarray):
                config = replace(setup.config, epochs=1, steps=None)
                scores["ft"] = meter.scores(local.train(kept, config, stream="ft").weights)
        runner.flops, runner.samples = 0, 0.0
        if job.kind != "personal":
            fit = method.adapt(state, down, local) if job.kind == "adapt" else method.fit(state, down, local)
            if job.score and fit.model is not None:
                scores["post"] = meter.scores(fit.model)
            kept = fit.model
        reply = Message() if fit is None else fit.reply.stamped(replace(job.stamp, acked=-1))
        outcome = Outcome(
            job=job,
            frame=encode(reply, setup.task.layout.lengths, packing=setup.packing),
            paper=paper_bytes(reply),
            scores=scores,
            loss=runner.loss,
            seconds=time.perf_counter() - began,
            flops=0 if fit is None else runner.flops,
            samples=0.0 if fit is None else runner.samples,
            model=kept if job.keep_model else None,
            known=meter.known,
        )
        return state if fit is None else fit.client, outcome

    def run_all(self, jobs: Sequence[Job], states: Sequence[Any]) -> list[tuple[Any, Outcome]]:
        """The turns of a group of clients."""
        if self._group is None:
            return [self.run(job, state) for job, state in zip(jobs, states, strict=True)]
        began = time.perf_counter()
        done = self._group.run([partial(self.run, job, state) for job, state in zip(jobs, states, strict=True)])
        each = (time.perf_counter() - began) / len(jobs)
        return [(state, replace(outcome, seconds=each)) for state, outcome in done]


class Meter:
    """Measures models of one client, except those that were measured before: the same model has the same scores.

    Where `known` is None all are measured. So it is in lockstep: whoever left a test out would be elsewhere when the
    others train, and who trains with whom must not hang on what a run remembers, which a crash makes it forget.
    """

    WORTHWHILE = 64
    """Samples. With fewer, measuring again costs no more than finding out that it is not needed."""

    def __init__(self, runner: ModelRunner, share: ClientSplit, known: tuple[Scored, ...] | None) -> None:
        self._runner = runner
        self._share = share
        self._always = known is None or len(share.test) + len(share.validation) < self.WORTHWHILE
        self.known = known or ()

    def scores(self, model: Model) -> Scores:
        share = self._share
        if self._always:
            return Scores(*self._runner.scores(model, share.test, share.validation))
        vector = isinstance(model, np.ndarray)
        key = hashlib.sha256(np.ascontiguousarray(model).data).digest() if vector else bytes.fromhex(digest(model))
        found = next((scored for scored in self.known if scored.digest == key), None)
        if found is None:
            found = Scored(key, Scores(*self._runner.scores(model, share.test, share.validation)))
        self.known = (found, *(scored for scored in self.known if scored is not found))[:2]
        return found.scores
