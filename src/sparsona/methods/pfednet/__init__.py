"""pFedNet: Zhao, Liu, Jiang, He, "Communication Efficient Training of Federated Model Over Unbalanced Labels" (a draft;
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
from sparsona.method import TRAIN, Arrival, Artefact, ClientId, Fit, Method, Phase, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.pfednet.cluster import clustered, slowed, typical
from sparsona.methods.pfednet.graph import Table
from sparsona.methods.pfednet.mixture import Mixture, mixture_of
from sparsona.methods.pfednet.network import Network
from sparsona.methods.pfednet.network_lasso import network_prox
from sparsona.methods.pfednet.sketch import metric_of, sketch_of, sketch_size
from sparsona.training.local import Local

SKETCH = Phase("sketch", everyone=True, joining=True)


@dataclass(frozen=True)
class ServerState:
    """Who is like whom, x, Z (a row a client), and where ADMM stood (a row an edge). `still`: nothing has moved yet."""

    network: Network
    x: Vector
    z: Table
    admm: Table
    still: bool = True


@METHODS.add
@dataclass(frozen=True)
class PFedNet(Method[ServerState, None]):
    """Personal models that similar clients pull together (network lasso); updates of few levels in long runs.

    Minimises mean_n f_n(y_n) + `lam` * sum over edges |z_i - z_j|_`p`. `layout`: all is personal, or split, or
    additive; in a split the layers `own`, or about such a share of all, are personal. The graph joins each client to
    the `k` with the most similar `sketch`; its edges have `weights` or not; `noise` is added to sketches.
    `local_steps`: send what training gave, over `eta`; else one gradient. `z_step` paper: z moves by eta/N; local: by
    eta, so that lam = 0 is local training. `decay`: eta and the learning rate fall by 1/sqrt(t). `weighting` of
    updates: all alike, or by samples. `gamma` fuses neighbouring entries; `gamma_unit` median: in units of median |g|
    sqrt(d), zeros left out; `gamma_decay` lets it fall; `pin_end` keeps the last entry of a tensor; `levels` rounds to
    so many values by k-means (0: not, and updates travel whole); `scope` of both: each tensor, or the model. `rho` is
    ADMM's penalty times the step size, `iterations` and `tolerance` end it.
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
    levels: Annotated[int, Field(ge=0)] = 32
    rho: Annotated[float, Field(gt=0)] = 0.5
    iterations: Annotated[int, Field(ge=1)] = 50
    tolerance: Annotated[float, Field(ge=0)] = 1e-4

    def phases(self, round: int) -> tuple[Phase, ...]:
        return (SKETCH, TRAIN) if round == 0 else (TRAIN,)

    def start_server(self, task: Task) -> ServerState:
        x, z = self._mixture(task.layout).start(task.initial)
        return ServerState(Network.empty(sketch_size(self.sketch, task)), x, z[None][:0], z[None][:0])

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        row = server.network.row(to)
        if context.phase == SKETCH:
            return Message()
        parts: dict[str, Part] = {} if row is not None else {"ask": 1}
        if not server.still:  # else the client has the initial model
            parts |= {"x": server.x, "z": server.z.mean(0) if row is None else server.z[row]}
        return Message(**parts)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        if local.phase == SKETCH:
            return Fit(None, Message(sketch=sketch_of(self.sketch, local, self.noise)), None)
        slow, y = slowed(self.decay, local.round), self.personal_model(state, down, local)
        eta = np.float32(slow * self.eta)
        if self.local_steps:
            trained = local.train(y, replace(local.config, lr=slow * local.config.lr)).weights
            g = (y - trained) / eta
        else:
            g = local.gradient(y, local.config.batch)
            trained = y - eta * g
        gamma = self.gamma * slowed(self.gamma_decay, local.round) * (typical(g) if self.gamma_unit == "median" else 1)
        sizes = [span.stop - span.start for span in local.layout.spans(self.scope)]
        parts: dict[str, Part] = {}
        if "ask" in down:
            parts["sketch"] = sketch_of(self.sketch, local, self.noise)
        if "ask" not in down or "z" not in down:  # a newcomer's z will be its neighbours', and g is not of that point
            parts["update"] = clustered(g, sizes, gamma, self.pin_end, self.levels)
            if self.weighting == "samples":
                parts["examples"] = local.examples
        return Fit(None, Message(**parts), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        mixture, news = self._mixture(context.task.layout), {}
        replies: dict[ClientId, tuple[int, Vector]] = {}
        for a in arrivals:
            if server.network.row(a.client) is None:
                news[a.client] = a.message.vector("sketch", sketch_size(self.sketch, context.task))
            if "update" in a.message and (a.client not in news or server.still):
                count = a.message.examples() if self.weighting == "samples" else 1
                replies[a.client] = count, a.message.levels("update", mixture.size).values
        network = server.network.joined(news, self.k, metric_of(self.sketch), self.weights)
        z = network.rows_of(server.z, mixture.start(context.task.initial)[1])
        admm = server.admm[:0] if news else server.admm
        if not replies:
            return ServerState(network, server.x, z, admm, server.still)
        weight = np.array([count for count, _ in replies.values()], np.float32)
        g = np.stack([update for _, update in replies.values()]) * (weight / weight.mean())[:, None]
        eta, clients = slowed(self.decay, context.round) * self.eta, len(network.clients)
        alone = eta if self.z_step == "local" else eta / clients
        moved = z.copy()
        moved[[network.clients.index(client) for client in replies]] -= np.float32(alone) * g[:, mixture.own]
        near, admm = network_prox(
            moved, network.graph, self.lam * alone * clients, self.p,
            rho=self.rho, start=admm, iterations=self.iterations, tolerance=self.tolerance,
        )  # fmt: skip
        x = server.x - np.float32(eta) * g[:, mixture.shared].mean(0)
        return ServerState(network, x, near, admm, still=False)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        mixture = self._mixture(local.layout)
        x, z = mixture.start(local.task.initial)
        return mixture.model(down.vector("x", len(x)), down.vector("z", len(z))) if "z" in down else local.task.initial

    def artefacts(self, server: ServerState) -> dict[str, Artefact]:
        return {"network": server.network.artefact()} if server.network.clients else {}

    def max_numbers(self, task: Task) -> int:
        return 2 * task.layout.size + sketch_size(self.sketch, task) + 4096

    def _mixture(self, layout: Layout) -> Mixture:
        return mixture_of(self.layout, layout, self.own)
