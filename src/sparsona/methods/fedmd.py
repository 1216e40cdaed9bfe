"""FedMD: Li, Wang, "FedMD: Heterogenous Federated Learning via Model Distillation", NeurIPS workshop 2019. Models stay
at home; clients send their logits for public samples, the server averages them, and clients learn the means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import torch

from sparsona.chance import Chance
from sparsona.data import load
from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.message import Message, Positions, Vector
from sparsona.method import TRAIN, Arrival, ClientId, Fit, Method, Phase, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.ops.mean import weighted_mean
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.objective import Objective
from sparsona.training.runner import EVAL_BATCH

SYNTHETIC = "synthetic"
"""Noise in the shape of the clients' samples, the same for all clients."""


def public_samples(name: str, like: torch.Tensor, count: int, chance: Chance) -> Array:
    """Return raw inputs of the data set `name` in the units of `like`; for `synthetic`, `count` of them.

    >>> public_samples("synthetic", torch.zeros(1, 1, 2, 2, dtype=torch.uint8), 3, Chance(0)).shape
    (3, 1, 2, 2)
    """
    shape, kind = tuple(like.shape[1:]), like.numpy().dtype
    if name == SYNTHETIC:
        rng = chance.rng("public samples")
        if kind == np.uint8 and len(shape) == 3:
            return rng.integers(0, 256, (count, *shape), np.uint8)
        if kind.kind == "f":
            return rng.normal(size=(count, *shape)).astype(kind)
        raise InputError("noise cannot stand in for texts or several inputs: name a public data set, public=NAME")
    inputs = loaded(name)
    if inputs.shape[1:] != shape or inputs.dtype != kind:
        raise InputError(
            f"public={name} has samples of shape {inputs.shape[1:]}, the clients' are {shape}: choose another"
        )
    return inputs


@lru_cache(maxsize=2)
def loaded(name: str) -> Array:
    """Return all inputs of a data set, cached because each round needs them."""
    return load(name).inputs


LOGITS = Phase("logits")


@dataclass(frozen=True)
class ServerState:
    """The last public samples, and the mean logits for them."""

    asked: Positions
    logits: Vector


@dataclass(frozen=True)
class ClientState:
    """The client's model, and whether it was trained on its own samples before the first phase."""

    weights: Vector
    ready: bool = False


@METHODS.add
@dataclass(frozen=True)
class FedMD(Method[ServerState, ClientState]):
    """Only logits travel: clients predict public samples, and learn the mean of all predictions.

    The authors also pre-train on the public labels, which are not used here.
    """

    private: ClassVar[tuple[str, ...]] = ("weights",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    public: str = option(SYNTHETIC, "data set of the same sample shape (synthetic: noise, only a stand-in)")
    align: int = option(500, "public samples per round", ge=1)
    pretrain: int = option(5, "epochs that a client trains alone before the first round", ge=0)
    digest: int = option(1, "epochs on the mean logits", ge=1)
    digest_batch: int = option(256, "batch size on the mean logits", ge=1)
    digest_lr: float = option(0.001, "learning rate on the mean logits", gt=0)

    def start_server(self, task: Task) -> ServerState:
        none = np.zeros(0, np.int64)
        return ServerState(Positions(self._count(), none), np.zeros(0, np.float32))

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def phases(self, round: int) -> tuple[Phase, ...]:
        return (LOGITS, TRAIN)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if context.phase == LOGITS:
            return Message(asked=self._asked(context))
        return Message(asked=server.asked, logits=server.logits)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        public = public_samples(self.public, local.runner.raw, self.align, local.task.chance)
        asked = down.positions("asked").indices
        if local.phase == LOGITS:
            state = self._ready(state, local)
            answers = _answers(state.weights, public[asked], local)
            return Fit(state, Message(logits=answers, examples=local.examples), None)
        weights = state.weights
        if len(asked):
            targets = down.vector("logits").reshape(len(asked), -1)
            config = replace(local.config, epochs=self.digest, steps=None, batch=self.digest_batch)
            config = replace(config, optimizer="adam", lr=self.digest_lr, weight_decay=0.0)
            weights = local.on(public[asked], targets, ABSOLUTE).train(weights, config, stream="digest").weights
        trained = local.train(weights, stream="revisit").weights
        return Fit(ClientState(trained, True), Message(examples=local.examples), trained)

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        return self.fit(self._ready(state, local), down, local)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        answers = [a for a in arrivals if "logits" in a.message and a.round == context.round]
        if context.phase != LOGITS or not answers:
            return server
        asked = self._asked(context)
        size = len(asked.indices) * _outputs(context.task)
        return ServerState(asked, weighted_mean((1.0, a.message.vector("logits", size)) for a in answers))

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(), once=steps(epochs=self.pretrain, steps=None) if self.pretrain else 0)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return state.weights

    def max_numbers(self, task: Task) -> int:
        return (self.align + 1) * _outputs(task) + self._count() + 4096

    def _count(self) -> int:
        return self.align if self.public == SYNTHETIC else len(loaded(self.public))

    def _asked(self, context: ServerContext) -> Positions:
        """Return this round's public samples."""
        count = self._count()
        chosen = context.rng("public").choice(count, min(self.align, count), replace=False)
        return Positions(count, np.sort(chosen))

    def _ready(self, client: ClientState, local: Local) -> ClientState:
        if client.ready or not self.pretrain:
            return replace(client, ready=True)
        config = replace(local.config, epochs=self.pretrain, steps=None)
        return ClientState(local.train(client.weights, config, stream="pretrain").weights, True)


def _outputs(task: Task) -> int:
    """Return the number of outputs per sample."""
    return task.layout.tensors[-1].shape[0]


def _distance(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs().mean(1)


ABSOLUTE = Objective(_distance, lambda outputs: outputs, lambda predictions, targets: float("nan"), "distance", False)


def _answers(weights: Vector, inputs: Array, local: Local) -> Vector:
    local.runner.count(len(inputs), passes=1)
    parts = torch.split(torch.from_numpy(inputs), EVAL_BATCH)
    outputs = [local.runner.forward(weights, local.runner.prepare(part)) for part in parts]
    return torch.cat(outputs).cpu().numpy().ravel()
