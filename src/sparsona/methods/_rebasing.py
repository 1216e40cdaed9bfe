"""What LGA and PLGA share: the server keeps the models that late clients started from, for as long as they are
awaited, and moves a late model to where the global model has gone meanwhile."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Method, ServerContext, Task
from sparsona.ops.mean import weighted_mean
from sparsona.ops.rebase import agreement, by_span, correction, share
from sparsona.ops.stages import stage_spans

C = TypeVar("C")


@dataclass(frozen=True)
class ServerState:
    """The global model, sent since round `since`, and older ones by the first round that sent them.

    `personal` is what late clients get beside the global model, until they are at work again; `term` the size of each
    one's last correction against its update, |S dd(w - w')| / |d|.
    """

    weights: Vector
    since: int
    history: dict[int, Vector]
    personal: dict[ClientId, Vector]
    term: dict[ClientId, float]

    def _key(self, round: int) -> int:
        return self.since if round >= self.since else max(r for r in self.history if r <= round)

    def at(self, round: int) -> Vector:
        """The model that was sent in `round`."""
        return self.weights if round >= self.since else self.history[self._key(round)]

    def awaited(self, waiting: Mapping[ClientId, int]) -> dict[int, Vector]:
        """Of all models so far those that replies under way will need: where each started, and the one after."""
        wanted = {self._key(round + step) for round in waiting.values() for step in (0, 1)}
        return {r: v for r, v in {**self.history, self.since: self.weights}.items() if r in wanted}


@dataclass(frozen=True)
class Rebasing(Method[ServerState, C], ABC):
    """`eq`: whether a late model is put onto the model of today (11) or stays on the one it started from (10). `per`:
    a cosine a tensor, or a stage. `raw`: the correction is scaled by the cosine itself. `lambda_dc` scales it."""

    eq: Literal[10, 11] = 11
    per: Literal["tensor", "stages"] = "tensor"
    raw: bool = False
    lambda_dc: Annotated[float, Field(ge=0)] = 1.0

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, 0, {}, {}, {})

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        personal = {k: own for k, own in server.personal.items() if k not in context.waiting}  # they have got theirs
        term = dict(server.term)

        def corrected() -> Iterator[tuple[float, Vector]]:
            for a in arrivals:
                weights = a.message.vector("weights", context.task.layout.size)
                personal.pop(a.client, None)
                if a.round < context.round:
                    weights, own, term[a.client] = self.rebased(server, weights, a.round, context.task.layout)
                    if own is not None:
                        personal[a.client] = own
                yield a.message.examples(), weights

        weights = weighted_mean(corrected())
        return ServerState(weights, context.round + 1, server.awaited(context.waiting), personal, term)

    def rebased(
        self, server: ServerState, trained: Vector, started: int, layout: Layout
    ) -> tuple[Vector, Vector | None, float]:
        """The late model corrected, the personal one made of it, and the size of the correction."""
        now, start, after = server.weights, server.at(started), server.at(started + 1)
        spans, n = self.spans(layout), layout.trainable
        delta = trained - start
        cosines = agreement(after - start, delta, spans)
        shares = by_span([share(c) for c in cosines], spans, layout.size)
        factor = by_span(cosines, spans, layout.size) if self.raw else shares
        moved = correction(np.float32(self.lambda_dc) * factor, delta, now - after)
        out = (now if self.eq == 11 else start) + moved + delta
        out[n:] = trained[n:]
        size = float(np.linalg.norm(delta[:n]))
        return out, self.mixture(out, now, shares), float(np.linalg.norm(moved[:n])) / size if size else 0.0

    def mixture(self, corrected: Vector, now: Vector, shares: Vector) -> Vector | None:
        """What the server makes for a late client to use; nothing, unless a method says otherwise."""
        return None

    def spans(self, layout: Layout) -> list[list[slice]]:
        return [[t.slice] for t in layout.parameters] if self.per == "tensor" else list(stage_spans(layout).values())

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        own = server.personal.get(to)
        return Message(weights=server.weights) if own is None else Message(weights=server.weights, personal=own)
