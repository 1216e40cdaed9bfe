"""pFedNet: Zhao, Liu, Jiang, He, "Communication Efficient TrainJob of Federated Model Over Unbalanced Labels" (a draft;
published by Zhao, Liu, Liu, He as "Medical Federated Model with Mixture of Personalized and Sharing Components",
arXiv 2306.14483). Model n is y = A x + B z_n; neighbours in a network of similar clients pull each other's z together
(network lasso, by ADMM on the server); clients send gradients whose entries a fused lasso has made equal in runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Message, Part, Vector
from sparsona.method import TRAIN, Arrival, ClientId, Fit, Method, Phase, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.pfednet.cluster import clustered, slowed, typical
from sparsona.methods.pfednet.copies import Copies, Originals, Table, levels_of, step_of
from sparsona.methods.pfednet.mixture import Mixture, mixture_of
from sparsona.methods.pfednet.network import Network
from sparsona.methods.pfednet.network_lasso import network_prox
from sparsona.methods.pfednet.sketch import metric_of, sketch_of, sketch_size
from sparsona.training.local import Local

SKETCH = Phase("sketch", everyone=True, joining=True)


@dataclass(frozen=True)
class ServerState:
    """Who is like whom, x and Z, and where ADMM stood, a row an edge."""

    network: Network
    state: Originals
    admm: Table


@METHODS.add
@dataclass(frozen=True)
class PFedNet(Method[ServerState, Copies]):
    """Personal models that similar clients pull together (network lasso); updates of few levels in long runs.

    Minimises mean_n f_n(y_n) + `lam` * sum over edges |z_i - z_j|_`p`. `layout`: all is personal; split, personal being
    the layers `own` or about such a share of all; additive. `sketch`, `k`, `noise`, `weights` make the graph.
    `local_steps`: send what training by the config gave, over `eta`; else one gradient of the config's batch. `z_step`
    paper: z moves by eta/N; local: by eta, so that lam = 0 is local training. `decay`: eta and the config's rate by
    1/sqrt(t). `gamma` fuses neighbouring entries (its unit may be median |g| sqrt(d), zeros left out), `levels` rounds
    to so many (0: not), both by tensor or over the model. `rho` is ADMM's penalty times the step size.
    """

    lam: Annotated[float, Field(ge=0)] = 0.03
    p: Literal[1, 2, "inf"] = 2
    layout: Literal["personal", "split", "additive"] = "personal"
    own: Annotated[float, Field(gt=0, lt=1)] | str = ""
    sketch: Literal["label", "shares", "mean", "cov", "kernel", "model"] = "label"
    k: Annotated[int, Field(ge=1)] = 3
    noise: Annotated[float, Field(ge=0)] = 0.0
    weights: bool = False
    local_steps: bool = True
    eta: Annotated[float, Field(gt=0)] = 0.1
    z_step: Literal["local", "paper"] = "local"
    decay: Literal["none", "sqrt"] = "none"
    weighting: Literal["uniform", "samples"] = "uniform"
    gamma: Annotated[float, Field(ge=0)] = 0.0
    gamma_unit: Literal["gradient", "median"] = "gradient"
    gamma_decay: Literal["none", "sqrt"] = "none"
    scope: Literal["tensor", "model"] = "tensor"
    pin_end: bool = True
    levels: Annotated[int, Field(ge=0)] = 0
    rho: Annotated[float, Field(gt=0)] = 0.5
    iterations: Annotated[int, Field(ge=1)] = 50
    tolerance: Annotated[float, Field(ge=0)] = 1e-4

    def phases(self, round: int) -> tuple[Phase, ...]:
        return (SKETCH, TRAIN) if round == 0 else (TRAIN,)

    def start_server(self, task: Task) -> ServerState:
        state = Originals.of(self._mixture(task.layout).start(task.initial))
        return ServerState(Network.empty(sketch_size(self.sketch, task)), state, state.z)

    def start_client(self, task: Task, client: ClientId) -> Copies:
        first = self._mixture(task.layout).start(task.initial)
        return Copies(first, first)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if self.phases(context.round)[context.phase] is SKETCH:
            return Message()
        row = server.network.row(to)
        return Message(**server.state.parts(to, row), **({"ask": 1} if row is None else {}))

    def fit(self, client: Copies, down: Message, local: Local) -> Fit[Copies]:
        if self.phases(down.round)[down.phase] is SKETCH:
            return Fit(client, Message(sketch=sketch_of(self.sketch, local, self.noise)), None)
        own, slow = replace(client.received(down), round=local.round), slowed(self.decay, local.round)
        y, eta = self._mixture(local.layout).model(own.came), np.float32(slow * self.eta)
        if self.local_steps:
            trained = local.train(y, replace(local.config, lr=slow * local.config.lr)).weights
            g = (y - trained) / eta
        else:
            g = local.gradient(y, local.config.batch)
            trained = y - eta * g
        sizes = [t.size for t in local.layout.parameters] if self.scope == "tensor" else [local.layout.trainable]
        gamma = self.gamma * slowed(self.gamma_decay, local.round) * (typical(g) if self.gamma_unit == "median" else 1)
        parts: dict[str, Part] = {}
        if "ask" in down:
            parts["sketch"] = sketch_of(self.sketch, local, self.noise)
        if "ask" not in down or "z" not in down:  # a newcomer's z will be its neighbours', and g is not of that point
            parts["update"] = clustered(g, sizes, gamma, self.pin_end, self.levels)
            if self.weighting == "samples":
                parts["examples"] = local.examples
        return Fit(own, Message(**parts), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        mixture, state, heard = self._mixture(context.task.layout), server.state, dict(server.state.heard)
        news: dict[ClientId, Vector] = {}
        replies: dict[ClientId, tuple[int, Vector]] = {}
        for a in arrivals:
            if server.network.row(a.client) is None:
                news[a.client] = a.message.vector("sketch", sketch_size(self.sketch, context.task))
            if a.client in news and not state.still:
                continue
            heard[a.client] = a.round
            if "update" in a.message:
                count = a.message.examples() if self.weighting == "samples" else 1
                replies[a.client] = count, levels_of(a.message, "update", mixture.size)
        network = server.network.joined(news, self.k, metric_of(self.sketch), self.weights)
        z, admm = (
            network.rows_of(state.z, mixture.start(context.task.initial).z),
            server.admm[:0] if news else server.admm,
        )
        state = replace(state, z=z, heard=heard)
        if not replies:
            return ServerState(network, state, admm)
        weight = np.array([count for count, _ in replies.values()], np.float32)
        g = np.stack([update for _, update in replies.values()]) * (weight / weight.mean())[:, None]
        eta, clients = slowed(self.decay, context.round) * self.eta, len(network.clients)
        alone = eta if self.z_step == "local" else eta / clients
        move = np.zeros_like(z)
        move[[network.clients.index(client) for client in replies]] = np.float32(-alone) * g[:, mixture.own]
        near, admm = network_prox(
            z + move, network.graph, self.lam * alone * clients, self.p,
            rho=self.rho, start=admm, iterations=self.iterations, tolerance=self.tolerance,
        )  # fmt: skip
        few = self.gamma > 0 or self.levels > 0
        x_step = step_of(state.x, np.float32(-eta) * g[:, mixture.shared].mean(0), few)
        z_step = move if few and not self.lam else near - z
        return ServerState(network, state.stepped(x_step, z_step, context.round), admm)

    def personal_model(self, client: Copies, down: Message, local: Local) -> Vector:
        return self._mixture(local.layout).model(client.received(down).came)

    def max_numbers(self, task: Task) -> int:
        return 2 * task.layout.size + sketch_size(self.sketch, task) + 4096

    def _mixture(self, layout: Layout) -> Mixture:
        return mixture_of(self.layout, layout, self.own)
