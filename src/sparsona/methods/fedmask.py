"""FedMask: Li, Sun, Li, Pu, Li, Chen, "FedMask: Joint Computation and Communication-Efficient Personalized Federated
Learning via Heterogeneous Masks", SenSys 2021. All clients share one model that is never trained; each learns which
weights of its last layers to use, and only bits travel. The original code is not public: details beyond the abstract
are our choice, and documented here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from sparsona.by_client import ByClient
from sparsona.layout import Layout
from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.ops.masks import Bits, pack, unpack
from sparsona.ops.parts import last_layers
from sparsona.ops.sparse import kept
from sparsona.options import option
from sparsona.training.config import TrainConfig
from sparsona.training.job import WeightTransform
from sparsona.training.local import Local
from sparsona.training.step import GradientSpans
from sparsona.training.vector import FlatModule


@dataclass(frozen=True)
class ServerState:
    """Each client's last mask, one bit per weight."""

    masks: ByClient[Bits]


@dataclass(frozen=True)
class ClientState:
    """A score per maskable weight, and the weights that survived the pruning; empty before it."""

    scores: Vector
    alive: Bits | None = None


@METHODS.add
@dataclass(frozen=True)
class FedMask(Method[ServerState, ClientState]):
    """Experimental: frozen common weights and one personal binary mask per client, one bit per weight each way.

    Where two or more masks have a weight, the majority of the clients decides; elsewhere a client's own bit stays. A
    client takes the server's bit over by the sign of its score.

    Without the original code this is a reading of the abstract, and it does not reach the accuracy that others print
    for FedMask (papers/cards/pfedgate.md). Masks of a random net that is never trained are the limit, not the votes:
    with votes switched off it scores the same.
    """

    unused: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")
    no_budget: ClassVar[str] = "fedmask trains through a weight transform, which gives no gradient of one row"

    layers: int = option(2, "number of last layers that are masked (0: all)", ge=0)
    keep: float = option(0.5, "share of a client's weights that survives its first training", gt=0, le=1)
    score_lr: float = option(
        20.0, "learning rate of the scores, in units of the root mean square of the tensor's weights", gt=0
    )

    def start_server(self, task: Task) -> ServerState:
        return ServerState(ByClient())

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        count = int(self._region(task.layout).sum())
        return ClientState(task.chance.rng("scores").uniform(0.0, 0.1, count).astype(np.float32))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if not server.masks:
            return Message()
        size = int(self._region(context.task.layout).sum())
        own = unpack(server.masks[to], size) if to in server.masks else None
        return Message(mask=Positions.of(agreed((unpack(bits, size) for bits in server.masks.values()), own)))

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        state, region = self._received(state, down), self._region(local.layout)
        weights, size = local.task.initial, int(region.sum())
        alive = np.ones(size, np.bool_) if state.alive is None else unpack(state.alive, size)
        config = replace(local.config, lr=self.score_lr, weight_decay=0.0)
        unit = _unit(weights, local.layout)[region]
        learnt = MaskScores(state.scores, region, alive, config, local.runner.device, unit)
        local.train(weights, mask=np.zeros(len(weights), np.bool_), transform=learnt)
        scores: Vector = learnt.scores.cpu().numpy()
        if state.alive is None:
            alive = np.zeros(size, np.bool_)
            alive[np.argsort(-scores, kind="stable")[: kept(size, 1 - self.keep)]] = True
        state = ClientState(scores, pack(alive))
        mask = (scores >= 0) & alive
        reply = Message(mask=Positions.of(mask), examples=local.examples)
        return Fit(state, reply, _masked(weights, region, mask))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = int(self._region(context.task.layout).sum())
        found = {a.client: pack(a.message.positions("mask", size).mask()) for a in arrivals}
        return ServerState(server.masks | found)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        state, region = self._received(state, down), self._region(local.layout)
        alive = True if state.alive is None else unpack(state.alive, len(state.scores))
        return _masked(local.task.initial, region, (state.scores >= 0) & alive)

    def _region(self, layout: Layout) -> Mask:
        if self.layers and self.layers < len(layout.layers):
            return last_layers(layout, self.layers)
        return np.ones(layout.size, np.bool_)

    def _received(self, state: ClientState, down: Message) -> ClientState:
        if "mask" not in down:
            return state
        size = np.maximum(np.abs(state.scores), np.float32(1e-6))
        return replace(state, scores=np.where(down.positions("mask").mask(), size, -size))


def agreed(masks: Iterable[Mask], own: Mask | None) -> Mask:
    """Return the majority where two or more masks have a weight, else the own bit; for a new client the majority."""
    votes, count = np.zeros(0, np.int64), 0
    for mask in masks:
        votes = mask.astype(np.int64) if not count else votes + mask
        count += 1
    majority: Mask = 2 * votes >= count
    return majority if own is None else np.where(votes >= 2, majority, own)


def _unit(weights: Vector, layout: Layout) -> Vector:
    """Return per weight the root mean square of its tensor."""
    out = np.ones(layout.size, np.float32)
    for tensor in layout.tensors:
        out[tensor.slice] = max(float(np.sqrt(np.square(weights[tensor.slice], dtype=np.float64).mean())), 1e-12)
    return out


def _masked(weights: Vector, region: Mask, mask: Mask) -> Vector:
    out = weights.copy()
    out[region] *= mask
    return out


class MaskScores(WeightTransform):
    """Trains one score per weight of `region`; a weight is active if its score is not negative and it is alive.

    The mask is [sigmoid(score) >= 1/2]; its gradient goes straight through to the sigmoid. A weight counts in the
    gradient of its score in the given `unit`, so that one rate fits layers of any width.
    """

    def __init__(
        self,
        scores: Vector,
        region: Mask,
        alive: Mask,
        config: TrainConfig,
        device: str = "cpu",
        unit: Vector | None = None,
    ) -> None:
        self.scores = torch.from_numpy(scores.copy()).to(device)
        self.own = (self.scores, torch.zeros_like(self.scores))
        self.config = config
        self._region = torch.from_numpy(np.flatnonzero(region)).to(device)
        self._alive = torch.from_numpy(alive).to(device)
        self._unit = torch.ones_like(self.scores) if unit is None else torch.from_numpy(unit).to(device)

    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            flat.weights[: len(weights)] = weights
            flat.weights[self._region] *= (self.scores >= 0) & self._alive
        outputs: torch.Tensor = flat.module(inputs)
        return outputs

    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans | None:
        assert self.own is not None
        soft = self.scores.sigmoid()
        slope = flat.gradient[self._region] * weights[self._region] / self._unit * soft * (1 - soft)
        self.own[1].copy_(slope * self._alive)
        return None
