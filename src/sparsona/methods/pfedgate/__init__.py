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
from sparsona.methods.pfedgate.blocks import Cut, blockwise_mean
from sparsona.methods.pfedgate.gate import Design, Gated, Gating, block_scales, cut_of, ready
from sparsona.methods.pfedgate.knapsack import Budget
from sparsona.ops.moments import Moments
from sparsona.training.chain import Chain, chain_or_none
from sparsona.training.local import Local

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
    """A private gate on each client makes a sparse model of the global one, for every batch its own.

    `density` is the share of weights that is kept; several are dealt out to clients in turn. `blocks` is the number of
    blocks of a tensor. `split` cuts equal blocks, or a first one as small as the least density (paper), or between
    output channels. `whole_output` keeps all of the output layer, unless it takes more than half of the density: a
    class whose weights are dropped cannot be predicted (the paper keeps its first block). `knapsack` chooses blocks
    exactly, as in the paper, or greedily, as in the authors' code. `ste` gives dropped blocks a gradient (paper) or not
    (repo). `paths` is how many linear paths the gate has. `gate_lr` is the gate's learning rate. `gate_pool` averages
    images over so many pixels before the gate. `gate_start` is the logit of the scales at the start: 0, the paper's,
    halves every layer, 3 nearly keeps them. `pre_norm` normalises the gate's inputs. `post_norm` normalises its logits.
    `sigmoid` squashes importance and scale. `gate_of` client gives a block one scale whatever the batch. `logit_relu`
    cuts the net's outputs at zero, as the authors' code does. `slim` skips dropped blocks where `ste` is repo.
    `test_batch` is how many test samples share a model (0: all). `new_epochs` is how long a new client trains its gate.
    """

    private: ClassVar[tuple[str, ...]] = ("gate", "moments")

    density: Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1)] = 0.5
    blocks: Annotated[int, Field(ge=1)] = 5
    split: Literal["equal", "paper", "channel"] = "equal"
    whole_output: bool = True
    knapsack: Literal["greedy", "exact"] = "exact"
    ste: Literal["paper", "repo"] = "paper"
    paths: Literal["one", "two"] = "two"
    gate_lr: Annotated[float, Field(gt=0)] = 0.1
    gate_pool: Annotated[int, Field(ge=1)] = 1
    gate_start: float = 3.0
    pre_norm: bool = True
    post_norm: bool = True
    sigmoid: bool = True
    gate_of: Literal["batch", "client"] = "batch"
    logit_relu: bool = False
    slim: bool = True
    test_batch: Annotated[int, Field(ge=0)] = 128
    new_epochs: Annotated[int, Field(ge=1)] = 1

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
        state = replace(state, gate=gating.flat.read_all(), moments=trained.transform)
        update = gating.cut.take(trained.weights - start, gating.used)
        reply = Message(update=update, examples=local.examples)
        return Fit(state, reply, self._model(state, trained.weights, local))

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        """A new client leaves the global model as it is and trains its gate only."""
        weights = down.vector("weights", local.layout.size)
        config = replace(local.config, epochs=self.new_epochs, steps=None, decay=1.0, drops=())
        gating = self._gating(state, replace(local, config=config))
        trained = local.train(weights, config, mask=np.zeros(len(weights), np.bool_), transform=gating)
        state = replace(state, gate=gating.flat.read_all(), moments=trained.transform)
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
        frozen = block_scales(gate, local.inputs(), cut, budget)
        test, chain = (self.test_batch, self.logit_relu), self._chain(local)
        return Gated(weights, state.gate, frozen, design, cut, budget, *test, local.layout, chain)

    def _gating(self, state: ClientState, local: Local) -> Gating:
        return Gating(
            self._design(local.task),
            self._cut(local.layout),
            self._budget(state),
            state.gate,
            replace(local.config, lr=self.gate_lr),
            state.moments,
            ste=self.ste,
            logit_relu=self.logit_relu,
            chain=self._chain(local),
            device=local.runner.device,
        )

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
        blocks = len(self._cut(task.layout))
        return Design(
            task.shape,
            blocks,
            self.paths,
            self.gate_pool,
            self.post_norm,
            self.gate_start,
            self.pre_norm,
            self.sigmoid,
            self.gate_of,
        )
