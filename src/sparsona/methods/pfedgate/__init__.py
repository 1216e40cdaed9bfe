"""pFedGate: Chen, Yao, Gao, Ding, Li, "Efficient Personalized Federated Learning via Sparse Model-Adaptation", ICML
2023. One global model, and on every client a private gating layer that scales its blocks and drops most of them, batch
by batch. Where the paper and the authors' code (yxdyc/pFedGate) differ, an option says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.pfedgate.blocks import Budget, Cut, blockwise_mean
from sparsona.methods.pfedgate.gate import Design, Gated, Gating, block_scales, cut_of, ready
from sparsona.ops.moments import Moments
from sparsona.options import option
from sparsona.training.chain import Chain, chain_or_none
from sparsona.training.local import Local
from sparsona.training.runner import EVAL_BATCH

Fraction = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class ServerState:
    """The global model."""

    weights: Vector


@dataclass(frozen=True)
class ClientState:
    """The gate phi_i with its norms' statistics, its optimiser's memory, and how dense this client's model is."""

    gate: Vector
    moments: Moments | None
    density: float


@METHODS.add
@dataclass(frozen=True)
class PFedGate(Method[ServerState, ClientState]):
    """A private gate on each client makes a sparse model of the global one, a new one for every batch.

    `whole_output` differs from the paper, which keeps the first block only: a class whose weights are dropped cannot be
    predicted.
    """

    private: ClassVar[tuple[str, ...]] = ("gate", "moments")
    no_budget: ClassVar[str] = "pfedgate's gate looks at a whole batch"

    density: Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1)] = option(
        0.5, "share of weights that is kept; a list is assigned to the clients in turn"
    )
    blocks: int = option(5, "number of blocks per tensor", ge=1)
    split: Literal["equal", "paper", "channel"] = option(
        "equal", "equal blocks, a first block as small as the least density (paper), or cuts between output channels"
    )
    whole_output: bool = option(True, "keep the whole output layer, unless it takes more than half of the density")
    knapsack: Literal["greedy", "exact"] = option(
        "exact", "choose blocks exactly, as in the paper, or greedily, as in the authors' code"
    )
    ste: Literal["paper", "repo"] = option("paper", "give dropped blocks a gradient (paper), or none (repo)")
    paths: Literal["one", "two"] = option("two", "number of linear paths of the gate")
    gate_lr: float = option(0.1, "learning rate of the gate", gt=0)
    gate_pool: int = option(1, "width in pixels of the average pooling before the gate", ge=1)
    gate_start: float = option(3.0, "initial logit of the scales: 3 nearly keeps a layer, 0 (paper) halves it")
    pre_norm: bool = option(True, "normalise the gate's inputs")
    post_norm: bool = option(True, "normalise the gate's logits")
    sigmoid: bool = option(True, "apply a sigmoid to importance and scale")
    gate_of: Literal["batch", "client"] = option("batch", "scales depend on the batch, or are fixed for the client")
    logit_relu: bool = option(False, "cut the network's outputs at zero, as the authors' code does")
    slim: bool = option(True, "skip the computation of dropped blocks (with ste repo)")
    test_batch: int = option(128, "number of test samples that share a model (0: all)", ge=0)
    new_epochs: int = option(1, "epochs that a new client trains its gate", ge=1)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        densities = self._densities()
        place = task.clients.index(client) if client in task.clients else task.chance.rng("density", client=client)
        turn = place if isinstance(place, int) else int(place.integers(len(densities)))
        gate = self._design(task).initial(task.chance, client)
        return ClientState(gate, None, densities[turn % len(densities)])

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start = down.vector("weights", local.layout.size)
        gating = self._gating(state, local)
        trained = local.train(start, transform=gating)
        state = replace(state, gate=gating.flat.read("all"), moments=trained.transform)
        update = gating.cut.take(trained.weights - start, gating.used)
        reply = Message(update=update, examples=local.examples)
        return Fit(state, reply, self._model(state, trained.weights, local))

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        """A new client leaves the global model as it is and trains its gate only."""
        weights = down.vector("weights", local.layout.size)
        config = replace(local.config, epochs=self.new_epochs, steps=None, decay=1.0, drops=())
        gating = self._gating(state, replace(local, config=config))
        trained = local.train(weights, config, mask=np.zeros(len(weights), np.bool_), transform=gating)
        state = replace(state, gate=gating.flat.read("all"), moments=trained.transform)
        return Fit(state, Message(), self._model(state, weights, local))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        cut = self._cut(context.task.layout)
        mean = blockwise_mean(cut, ((a.message.examples(), a.message.blocks("update")) for a in arrivals))
        return ServerState(server.weights + mean)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Gated:
        return self._model(state, down.vector("weights", local.layout.size), local)

    def _model(self, state: ClientState, weights: Vector, local: Local) -> Gated:
        design, cut, budget = self._design(local.task), self._cut(local.layout), self._budget(state)
        gate = ready(design, state.gate, local.runner.device)
        frozen = block_scales(gate, local.inputs(slice(EVAL_BATCH)), cut, budget)
        test, chain = (self.test_batch, self.logit_relu), self._chain(local)
        return Gated(weights, state.gate, frozen, design, cut, budget, *test, local.layout, chain)

    def _gating(self, state: ClientState, local: Local) -> Gating:
        design, cut, budget = self._design(local.task), self._cut(local.layout), self._budget(state)
        config, chain, device = replace(local.config, lr=self.gate_lr), self._chain(local), local.runner.device
        return Gating(design, cut, budget, state.gate, config, state.moments, self.ste, self.logit_relu, chain, device)

    def _chain(self, local: Local) -> Chain | None:
        return chain_or_none(local.runner.flat.module) if self.slim else None

    def _densities(self) -> tuple[float, ...]:
        return self.density if isinstance(self.density, tuple) else (self.density,)

    def _least(self, density: float) -> float:
        return min(max(1 / self.blocks, 0.1), density)

    def _cut(self, layout: Layout) -> Cut:
        return cut_of(layout, self.blocks, self.split, self._least(min(self._densities())))

    def _budget(self, state: ClientState) -> Budget:
        smallest = min(self._densities()) if self.split == "paper" else state.density
        return Budget(state.density, self._least(smallest), self.knapsack, self.whole_output)

    def _design(self, task: Task) -> Design:
        blocks, built = len(self._cut(task.layout)), (self.paths, self.gate_pool, self.post_norm, self.gate_start)
        return Design(task.shape, blocks, *built, self.pre_norm, self.sigmoid, self.gate_of)
