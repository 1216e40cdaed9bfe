"""PLGA: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the asynchronous half. LGA; and what
a client uses is a mixture of its own model and the new global one, by how much their directions agree, eq. (12)/(14):

    w_p = w0 + (1 - S)(w_k - w0) + S (w - w0) = w_k + S (w - w_k),    S = e^c / (e + e^c),  c = cos(w - w0, w_k - w0).

A client that was on time has all of this itself. One that was late has not: the server mixes for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._rebasing import Rebasing, ServerState, spans_of
from sparsona.methods.averaging import received
from sparsona.ops.mean import weighted_mean
from sparsona.ops.rebase import agreement, by_span, share
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The model of the last downlink that the client trained from, and what it made of it; None before that."""

    start: Vector | None = None
    trained: Vector | None = None


@METHODS.add
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
        start = received(down, local)
        begin = self.personal_model(state, down, local) if self.start_from == "personalised" else start
        trained = local.train(begin).weights
        return Fit(ClientState(start, trained), Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout, term = context.task.layout, dict(server.term)
        served, late = set(context.unanswered), dict[ClientId, Vector]()  # who has got a personal model, who gets one
        correction = self.correction(layout)

        def models() -> Iterator[tuple[float, Vector]]:
            for a in arrivals:
                weights = a.message.vector("weights", layout.size)
                served.add(a.client)
                if a.client in server.after:
                    weights, shares, term[a.client] = correction.rebased(server, a, layout)
                    late[a.client] = mixture(weights, server.weights, shares)
                yield a.message.examples(), weights

        weights = weighted_mean(models())
        personal = server.personal.without(served) | late
        return ServerState(weights, server.successors(weights, context), personal, term)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        now = received(down, local)
        if "personal" in down:
            return down.vector("personal", local.layout.size)
        if state.start is None or state.trained is None:
            return now
        spans = spans_of(local.layout, self.per)
        cosines = agreement(now - state.start, state.trained - state.start, spans)
        return mixture(state.trained, now, by_span([share(c) for c in cosines], spans, local.layout.size))


def mixture(own: Vector, now: Vector, shares: Vector) -> Vector:
    """Eq. (12): the start cancels."""
    return own + shares * (now - own)
