"""LGA and PLGA: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the asynchronous half.

LGA is FedAvg whose late models are corrected for what the global model has learned since they started. PLGA is LGA; and
what a client uses is a mixture of its own model and the new global one, by how much their directions agree, eq. (12)
and (14):

    w_p = w0 + (1 - S)(w_k - w0) + S (w - w0) = w_k + S (w - w_k),    S = e^c / (e + e^c),  c = cos(w - w0, w_k - w0).

A client that was on time has all of this itself. One that was late has not: the server mixes for it.
"""

import math
from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from sparsona.by_client import ByClient
from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival, C, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.ops.mean import weighted_mean
from sparsona.ops.pairwise import cosine
from sparsona.ops.parts import stage_spans, whole_net
from sparsona.options import option
from sparsona.training.local import Local

Spans: TypeAlias = Sequence[Sequence[slice]]
"""Groups of spans with one cosine each."""


@dataclass(frozen=True)
class ServerState:
    """The global model w. `after` has, per client that is still training, the global model after its start. `personal`
    are the models that late clients get besides w; `term` is each one's last correction relative to its update, |S dd(w
    - w')| / |d|."""

    weights: Vector
    after: dict[ClientId, Vector] = field(default_factory=dict)
    personal: ByClient[Vector] = field(default_factory=ByClient)
    term: dict[ClientId, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientState:
    """The model of the last downlink that the client trained from, and what it made of it; None before that."""

    start: Vector | None = None
    trained: Vector | None = None


@dataclass(frozen=True)
class Rebasing(Method[ServerState, C], ABC):
    """A method whose server corrects late models."""

    eq: Literal[10, 11] = option(
        11, "the paper's equation: add a late update to the current model (11) or its start (10)"
    )
    per: Literal["tensor", "stages", "net"] = option("tensor", "one cosine per tensor, per stage, or for the whole net")
    raw: bool = option(False, "scale the correction by the cosine itself")
    lambda_dc: float = option(1.0, "scale of the correction", ge=0)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def spans(self, layout: Layout) -> Spans:
        """Return the spans of one cosine each: tensors, stages, or the whole net."""
        if self.per == "net":
            return [whole_net(layout)]
        return [[t.slice] for t in layout.tensors] if self.per == "tensor" else list(stage_spans(layout).values())

    def rebased(self, server: ServerState, late: Arrival, layout: Layout) -> tuple[Vector, Vector, float]:
        """Return the corrected model, the shares S of the common direction, and the size of the correction."""
        now, after, spans = server.weights, server.after[late.client], self.spans(layout)
        start, trained = (m.vector("weights", layout.size) for m in (late.sent, late.message))
        delta = trained - start
        cosines = agreement(after - start, delta, spans)
        shares = by_span([share(c) for c in cosines], spans, layout.size)
        factor = np.float32(self.lambda_dc) * (by_span(cosines, spans, layout.size) if self.raw else shares)
        moved = factor * delta * delta * (now - after)
        size = float(np.linalg.norm(delta))
        ratio = float(np.linalg.norm(moved)) / size if size else 0.0
        return (now if self.eq == 11 else start) + moved + delta, shares, ratio

    def merged(
        self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext, mix: bool = False
    ) -> tuple[ServerState, dict[ClientId, Vector]]:
        """Return the state with the mean of the models, late ones corrected; with `mix` also late clients' mixtures."""
        layout, term, late = context.task.layout, dict(server.term), dict[ClientId, Vector]()

        def models() -> Iterator[tuple[float, Vector]]:
            for a in arrivals:
                weights = a.message.vector("weights", layout.size)
                if a.client in server.after:
                    weights, shares, term[a.client] = self.rebased(server, a, layout)
                    late.update({a.client: mixture(weights, server.weights, shares)} if mix else {})
                yield a.message.examples(), weights

        weights = weighted_mean(models())
        after = {client: server.after.get(client, weights) for client in context.unanswered}
        return ServerState(weights, after, server.personal, term), late


@METHODS.named("lga")
@dataclass(frozen=True)
class LGA(Rebasing[None]):
    """One global model; late models are corrected for the rounds that they missed. In time it is FedAvg."""

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(down.vector("weights", local.layout.size)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return self.merged(server, arrivals, context)[0]

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)


@METHODS.named("plga")
@dataclass(frozen=True)
class PLGA(Rebasing[ClientState]):
    """LGA plus one personal model per client: its own and the global model, mixed as far as they agree."""

    start_from: Literal["global", "personalised"] = option("global", "model from which the next training starts")

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState()

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        own = server.personal.get(to)
        return Message(weights=server.weights) if own is None else Message(weights=server.weights, personal=own)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start = down.vector("weights", local.layout.size)
        begin = self.personal_model(state, down, local) if self.start_from == "personalised" else start
        trained = local.train(begin).weights
        return Fit(ClientState(start, trained), Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        state, late = self.merged(server, arrivals, context, mix=True)
        served = {*context.unanswered, *(a.client for a in arrivals)}
        return replace(state, personal=server.personal.without(served) | late)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        now = down.vector("weights", local.layout.size)
        if "personal" in down:
            return down.vector("personal", local.layout.size)
        if state.start is None or state.trained is None:
            return now
        spans = self.spans(local.layout)
        cosines = agreement(now - state.start, state.trained - state.start, spans)
        return mixture(state.trained, now, by_span([share(c) for c in cosines], spans, local.layout.size))


def mixture(own: Vector, now: Vector, shares: Vector) -> Vector:
    """Return the model of eq. (12), from which the start cancels."""
    return own + shares * (now - own)


def share(c: float) -> float:
    """Return e^c / (e + e^c), eq. (9): the weight of the others' direction, at most a half."""
    return math.exp(c) / (math.e + math.exp(c))


def by_span(values: Sequence[float], spans: Spans, size: int) -> Vector:
    """Return one number per entry of a vector: each value on its spans, 0 elsewhere."""
    out = np.zeros(size, np.float32)
    for value, group in zip(values, spans, strict=True):
        for span in group:
            out[span] = value
    return out


def agreement(moved: Vector, delta: Vector, spans: Spans) -> list[float]:
    """Return the cosine of two movements per group of spans."""
    return [cosine(*(np.concatenate([vector[span] for span in group]) for vector in (moved, delta))) for group in spans]
