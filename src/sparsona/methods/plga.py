"""PLGA: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the asynchronous half. LGA; and what
a client uses is a mixture of its own model and the new global one, by how much their directions agree, eq. (12)/(14):

    w_p = w0 + (1 - S)(w_k - w0) + S (w - w0) = w_k + S (w - w_k),    S = e^c / (e + e^c),  c = cos(w - w0, w_k - w0).

A client that was on time has all of this itself. One that was late has not: the server mixes for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import received
from sparsona.methods._rebasing import Rebasing
from sparsona.ops.rebase import agreement, by_span, share
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The model of the last downlink, and what the client has made of it in round `round`."""

    start: Vector
    trained: Vector
    round: int


@METHODS.add
@dataclass(frozen=True)
class PLGA(Rebasing[ClientState]):
    """LGA, and a personal model: the client's own and the global one, mixed as far as they agree.

    `start_from`: where the next training starts, at the global model or at the personal one. `eq` 11 adds a late
    update to the model of today, 10 to the one it started from; `per` tensor or stages: what one cosine is taken over;
    `raw`: scale the correction by the cosine; `lambda_dc`: and by this.
    """

    start_from: Literal["global", "personalised"] = "global"

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        nothing = np.zeros(0, np.float32)
        return ClientState(nothing, nothing, -1)

    def fit(self, client: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start = received(down, local)
        trained = local.train(
            self.personal_model(client, down, local) if self.start_from != "global" else start
        ).weights
        own = ClientState(start, trained, down.round)
        return Fit(own, Message(weights=trained, examples=local.examples), trained)

    def personal_model(self, client: ClientState, down: Message, local: Local) -> Vector:
        now = received(down, local)
        if client.round < 0:
            return now
        if "personal" in down and down.acked == client.round:
            return down.vector("personal", local.layout.size)
        spans = self.spans(local.layout)
        cosines = agreement(now - client.start, client.trained - client.start, spans)
        shares = by_span([share(c) for c in cosines], spans, local.layout.size)
        return self.mixture(client.trained, now, shares)

    def mixture(self, corrected: Vector, now: Vector, shares: Vector) -> Vector:
        """Eq. (12): the start cancels."""
        return corrected + shares * (now - corrected)
