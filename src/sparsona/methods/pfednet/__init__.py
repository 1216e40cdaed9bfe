"""pFedNet: Zhao, Liu, Jiang, He, "Communication Efficient Training of Federated Model Over Unbalanced Labels" (a draft;
published by Zhao, Liu, Liu, He as "Medical Federated Model with Mixture of Personalized and Sharing Components",
arXiv 2306.14483). Model n is y = A x + B z_n; neighbours in a network of similar clients pull each other's z together
(network lasso, by ADMM on the server); clients send gradients whose entries a fused lasso has made equal in runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from sparsona.errors import InputError
from sparsona.message import Message, Part, Vector
from sparsona.method import TRAIN, Arrival, Artefact, ClientId, Fit, Method, Phase, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods.pfednet.cluster import clustered, slowed, typical
from sparsona.methods.pfednet.graph import Network, Table
from sparsona.methods.pfednet.mixture import mixture_of
from sparsona.methods.pfednet.network_lasso import network_prox
from sparsona.methods.pfednet.sketch import Kind, metric_of, sketch_of, sketch_size
from sparsona.options import option
from sparsona.training.local import Local

Fraction = Annotated[float, Field(gt=0, lt=1)]
SKETCH = Phase("sketch", everyone=True, joining=True)


@dataclass(frozen=True)
class ServerState:
    """The network, x, Z (one row per client), and ADMM's state (one row per edge). `still`: nothing has moved yet."""

    network: Network
    x: Vector
    z: Table
    admm: Table
    still: bool = True


@METHODS.add
@dataclass(frozen=True)
class PFedNet(Method[ServerState, None]):
    """Personal models that similar clients pull together (network lasso); updates of few levels in long runs."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    lam: float = option(0.03, "strength of the pull between neighbours", ge=0)
    p: Literal[1, 2, "inf"] = option(2, "norm of the penalised differences between neighbours")
    layout: Literal["personal", "split", "additive"] = option(
        "personal", "all weights are personal, a part is (split), or all are, added to a shared model (additive)"
    )
    own: Fraction | str = option(
        "", "personal layers of layout split, by name or as a share of all weights (not given: the last layer)"
    )
    sketch: Kind = option("label", "summary of a client's data by which similar clients are found")
    k: int = option(3, "number of nearest clients that each client is joined to", ge=1)
    noise: float = option(0.0, "noise added to sketches, in units of their size", ge=0)
    weights: bool = option(False, "give edges between near neighbours more weight")
    local_steps: bool = option(True, "send the change by a round of training, divided by eta; false: send one gradient")
    eta: float = option(0.1, "step size of the server", gt=0)
    z_step: Literal["local", "paper"] = option(
        "local", "step of the personal parts: eta (local; lam 0 is then training alone) or eta/N (paper)"
    )
    decay: Literal["none", "sqrt"] = option("none", "sqrt: eta and the learning rate fall by 1/sqrt(t)")
    weighting: Literal["uniform", "samples"] = option("uniform", "weigh updates alike, or by samples")
    gamma: float = option(0.0, "strength of the fusion of neighbouring entries of an update", ge=0)
    gamma_unit: Literal["gradient", "median"] = option(
        "gradient", "unit of gamma: that of the gradient, or the gradient's median entry times sqrt(d)"
    )
    gamma_decay: Literal["none", "sqrt"] = option("none", "sqrt: gamma falls by 1/sqrt(t)")
    scope: Literal["tensor", "model"] = option("tensor", "fuse and round within each tensor, or over the whole model")
    pin_end: bool = option(True, "also pull the last entry of a tensor to zero, as the paper does")
    levels: int = option(16, "number of values that a tensor's update is rounded to (0: not rounded)", ge=0)
    rho: float = option(0.5, "penalty of ADMM, times the step size", gt=0)
    iterations: int = option(50, "maximum number of ADMM iterations", ge=1)
    tolerance: float = option(1e-4, "tolerance at which ADMM stops", ge=0)

    def phases(self, round: int) -> tuple[Phase, ...]:
        return (SKETCH, TRAIN) if round == 0 else (TRAIN,)

    def start_server(self, task: Task) -> ServerState:
        x, z = mixture_of(self.layout, task.layout, self.own).start(task.initial)
        return ServerState(Network.empty(sketch_size(self.sketch, task)), x, z[None][:0], z[None][:0])

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if context.phase == SKETCH:
            return Message()
        row = server.network.row(to)
        parts: dict[str, Part] = {} if row is not None else {"ask": 1}
        if not server.still:  # else the client has the initial model
            parts |= {"x": server.x, "z": server.z.mean(0) if row is None else server.z[row]}
        return Message(**parts)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        if local.phase == SKETCH:
            return Fit(None, Message(sketch=sketch_of(self.sketch, local, self.noise)), None)
        slow, y = slowed(self.decay, local.round), self.personal_model(state, down, local)
        if self.local_steps:
            trained = local.train(y, replace(local.config, lr=slow * local.config.lr)).weights
            g = (y - trained) / np.float32(slow * self.eta)
        else:
            g = local.gradient(y, local.config.batch)
            trained = y - np.float32(slow * self.eta) * g
        gamma = self.gamma * slowed(self.gamma_decay, local.round) * (typical(g) if self.gamma_unit == "median" else 1)
        sizes = [span.stop - span.start for span in local.layout.spans(self.scope)]
        parts: dict[str, Part] = {"sketch": sketch_of(self.sketch, local, self.noise)} if "ask" in down else {}
        if "ask" not in down or "z" not in down:  # a newcomer's z will be its neighbours', and g is not of that point
            parts["update"] = clustered(g, sizes, gamma, self.pin_end, self.levels)
            parts |= {"examples": local.examples} if self.weighting == "samples" else {}
        return Fit(None, Message(**parts), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        mixture, news = mixture_of(self.layout, context.task.layout, self.own), {}
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
            return replace(server, network=network, z=z, admm=admm)
        eta, clients = slowed(self.decay, context.round) * self.eta, len(network.clients)
        own = eta if self.z_step == "local" else eta / clients
        weight = np.array([count for count, _ in replies.values()], np.float32)
        g = np.stack([update for _, update in replies.values()]) * (weight / weight.mean())[:, None]
        moved = z.copy()
        moved[network.rows(replies)] -= np.float32(own) * g[:, mixture.own]
        z, admm = network_prox(
            moved,
            network.graph,
            self.lam * own * clients,
            self.p,
            rho=self.rho,
            start=admm,
            iterations=self.iterations,
            tolerance=self.tolerance,
        )
        return ServerState(network, server.x - np.float32(eta) * g[:, mixture.shared].mean(0), z, admm, still=False)

    def queries(self, steps: Steps) -> Queries:
        if self.sketch != "model":
            raise InputError(f"pfednet's sketch={self.sketch} is a raw statistic of the rows: set sketch=model")
        return Queries(steps() if self.local_steps else 1, once=2 * steps(epochs=1, steps=None))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        mixture = mixture_of(self.layout, local.layout, self.own)
        x, z = mixture.start(local.task.initial)
        return mixture.model(down.vector("x", len(x)), down.vector("z", len(z))) if "z" in down else local.task.initial

    def artefacts(self, server: ServerState) -> dict[str, Artefact]:
        return {"network": server.network.artefact()} if server.network.clients else {}

    def max_numbers(self, task: Task) -> int:
        return 2 * task.layout.size + sketch_size(self.sketch, task) + 4096
