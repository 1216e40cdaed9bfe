"""A client's turn, the same in every engine: bytes in, a state, bytes out, and what was measured on the way."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from torch import nn

from sparsona.dataset import Federation, Share
from sparsona.local import Bench, Local, Recipe
from sparsona.message import Message, Stamp, paper_bytes
from sparsona.method import ClientId, Fit, Method, Model, Task
from sparsona.objective import Objective
from sparsona.wire import Frame, Limit, decode, encode


@dataclass(frozen=True)
class Setup:
    """One experiment, resolved: all that a worker needs to run any client of it."""

    method: Method[Any, Any]
    task: Task
    federation: Federation
    module: nn.Module
    objective: Objective
    recipe: Recipe
    device: str = "cpu"

    def limit(self) -> Limit:
        return Limit(self.method.volume(self.task))


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


@dataclass(frozen=True)
class Scores:
    """A model on the client's own test and validation samples; NaN where there are none."""

    test: float
    validation: float


@dataclass(frozen=True)
class Outcome:
    """What a turn gave. The scores are by evaluation point: pre, post, ft."""

    job: Job
    frame: Frame
    paper: int
    scores: dict[str, Scores]
    loss: float
    seconds: float
    model: Model | None = None


class Worker:
    """Runs clients' turns, one after another, on one bench."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.bench = Bench(setup.module, setup.federation.data, setup.objective, setup.task.chance, setup.device)
        self.limit = setup.limit()

    def run(self, job: Job, state: Any) -> tuple[Any, Outcome]:
        """The client's state after the turn, and its outcome."""
        began = time.perf_counter()
        setup, method = self.setup, self.setup.method
        share = setup.federation.shares[job.client]
        local = Local(job.client, job.stamp.round, setup.task, setup.recipe, share, self.bench)
        down = decode(job.down, self.limit, setup.task.layout.lengths)
        if not job.down:
            down = down.stamped(job.stamp)
        scores: dict[str, Scores] = {}
        fit: Fit[Any] | None = None
        kept: Model | None = None
        self.bench.loss = float("nan")
        if job.kind in ("personal", "adapt"):
            kept = method.personal(state, down, local)
            if job.score:
                scores["pre"] = self._scores(kept, share)
            if job.fine_tune and isinstance(kept, np.ndarray):
                recipe = replace(setup.recipe, epochs=1, steps=None)
                scores["ft"] = self._scores(local.train(kept, recipe, stream="ft").weights, share)
        if job.kind != "personal":
            fit = method.adapt(state, down, local) if job.kind == "adapt" else method.fit(state, down, local)
            if job.score and fit.model is not None:
                scores["post"] = self._scores(fit.model, share)
            kept = fit.model
        reply = Message() if fit is None else fit.reply.stamped(replace(job.stamp, acked=-1))
        outcome = Outcome(
            job=job,
            frame=encode(reply, setup.task.layout.lengths),
            paper=paper_bytes(reply),
            scores=scores,
            loss=self.bench.loss,
            seconds=time.perf_counter() - began,
            model=kept if job.keep_model else None,
        )
        return state if fit is None else fit.client, outcome

    def _scores(self, model: Model, share: Share) -> Scores:
        return Scores(self.bench.score(model, share.test), self.bench.score(model, share.validation))
