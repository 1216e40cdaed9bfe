"""FedMD: Li, Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", NeurIPS workshop 2019. Models stay
at home; clients tell what they make of public samples, the server averages the logits, and clients learn them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field

from sparsona.bench import EVAL_BATCH
from sparsona.dataset import Array
from sparsona.local import Local
from sparsona.message import Message, Positions, Vector
from sparsona.method import TRAIN, Arrival, ClientId, Exchange, Fit, Method, Task, Turn
from sparsona.methods import METHODS
from sparsona.objective import Objective
from sparsona.ops.mean import weighted_mean
from sparsona.ops.public import SYNTHETIC, loaded, public_samples


@dataclass(frozen=True)
class Server:
    """The public samples asked for last, and the mean logits for them."""

    asked: Positions
    logits: Vector


@dataclass(frozen=True)
class Own:
    """The client's model, and whether it was trained on its own samples before the first exchange."""

    weights: Vector
    ready: bool = False


@METHODS.add
@dataclass(frozen=True)
class FedMD(Method[Server, Own]):
    """Only logits travel: `align` samples of the `public` data set are answered, averaged and learnt each round.

    `public` is a data set of the same shape of sample; `synthetic` is noise in its place, and no more than a stand-in.
    A client first trains `pretrain` epochs alone, then digests the mean logits for `digest` epochs and trains on its
    own samples by the recipe. The authors also pre-train on the public labels; here these are not looked at.
    """

    private: ClassVar[tuple[str, ...]] = ("weights",)

    public: str = SYNTHETIC
    align: Annotated[int, Field(ge=1)] = 500
    pretrain: Annotated[int, Field(ge=0)] = 5
    digest: Annotated[int, Field(ge=1)] = 1
    digest_batch: Annotated[int, Field(ge=1)] = 256
    digest_lr: Annotated[float, Field(gt=0)] = 0.001

    def start_server(self, task: Task) -> Server:
        none = np.zeros(0, np.int64)
        return Server(Positions(self._count(), none), np.zeros(0, np.float32))

    def start_client(self, task: Task, client: ClientId) -> Own:
        return Own(task.initial)

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Exchange("logits"), TRAIN)

    def send(self, server: Server, to: ClientId, turn: Turn) -> Message:
        if turn.exchange == 0:
            return Message(asked=self._asked(turn))
        return Message(asked=server.asked, logits=server.logits)

    def fit(self, client: Own, down: Message, local: Local) -> Fit[Own]:
        public = public_samples(self.public, local.bench.raw, self.align, local.task.chance)
        asked = down.positions("asked").indices
        if down.exchange == 0:
            client = self._ready(client, local)
            answers = _answers(client.weights, public[asked], local)
            return Fit(client, Message(logits=answers, examples=local.examples), None)
        weights = client.weights
        if len(asked):
            targets = down.vector("logits").reshape(len(asked), -1)
            recipe = replace(local.recipe, epochs=self.digest, steps=None, batch=self.digest_batch)
            recipe = replace(recipe, optimizer="adam", lr=self.digest_lr, weight_decay=0.0)
            weights = local.on(public[asked], targets, ABSOLUTE).train(weights, recipe, stream="digest").weights
        trained = local.train(weights, stream="revisit").weights
        return Fit(Own(trained, True), Message(examples=local.examples), trained)

    def adapt(self, client: Own, down: Message, local: Local) -> Fit[Own]:
        return self.fit(self._ready(client, local), down, local)

    def merge(self, server: Server, arrivals: Sequence[Arrival], turn: Turn) -> Server:
        answers = [a for a in arrivals if "logits" in a.message and a.round == turn.round]
        if turn.exchange or not answers:
            return server
        return Server(self._asked(turn), weighted_mean((1.0, a.message.vector("logits")) for a in answers))

    def personal(self, client: Own, down: Message, local: Local) -> Vector:
        return client.weights

    def volume(self, task: Task) -> int:
        outputs = task.layout.parameters[-1].shape[0]
        return (self.align + 1) * outputs + self._count() + 4096

    def _count(self) -> int:
        return self.align if self.public == SYNTHETIC else len(loaded(self.public))

    def _asked(self, turn: Turn) -> Positions:
        """This round's public samples."""
        count = self._count()
        chosen = turn.rng("public").choice(count, min(self.align, count), replace=False)
        return Positions(count, np.sort(chosen))

    def _ready(self, client: Own, local: Local) -> Own:
        if client.ready or not self.pretrain:
            return replace(client, ready=True)
        recipe = replace(local.recipe, epochs=self.pretrain, steps=None)
        return Own(local.train(client.weights, recipe, stream="pretrain").weights, True)


def _distance(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs().mean(1)


ABSOLUTE = Objective(_distance, lambda outputs: outputs, lambda predictions, targets: float("nan"), "distance", False)


def _answers(weights: Vector, inputs: Array, local: Local) -> Vector:
    local.bench.count(len(inputs), passes=1)
    parts = torch.split(torch.from_numpy(inputs), EVAL_BATCH)
    outputs = [local.bench.forward(weights, local.bench.prepare(part)) for part in parts]
    return torch.cat(outputs).cpu().numpy().ravel()
