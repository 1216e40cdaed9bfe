"""LGA and PLGA: a late model is moved along with the global model since its start."""

from abc import ABC
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sparsona.by_client import ByClient
from sparsona.layout import Layout
from sparsona.message import Vector
from sparsona.method import Arrival, C, ClientId, Method, ServerContext, Task
from sparsona.ops.parts import stage_spans, whole_net
from sparsona.ops.rebase import agreement, by_span, correction, share
from sparsona.options import option


@dataclass(frozen=True)
class ServerState:
    """The global model w. `after` has, per client that is still training, the global model after its start. `personal`
    are the models that late clients get besides w; `term` is each one's last correction relative to its update, |S dd(w
    - w')| / |d|."""

    weights: Vector
    after: dict[ClientId, Vector] = field(default_factory=dict)
    personal: ByClient[Vector] = field(default_factory=ByClient)
    term: dict[ClientId, float] = field(default_factory=dict)

    def successors(self, weights: Vector, context: ServerContext) -> dict[ClientId, Vector]:
        """Return `after` once `weights` is the global model."""
        return {client: self.after.get(client, weights) for client in context.unanswered}


@dataclass(frozen=True)
class Correction:
    """The correction of late models, from the present model (`eq` 11) or from its start (`eq` 10).

    `raw`: the correction is scaled by the cosine itself. `scale` multiplies it. Each of `spans` has its own cosine."""

    eq: int
    raw: bool
    scale: float
    spans: list[list[slice]]

    def rebased(self, server: ServerState, late: Arrival, layout: Layout) -> tuple[Vector, Vector, float]:
        """Return the corrected model, the shares S of the common direction, and the size of the correction."""
        now, after = server.weights, server.after[late.client]
        start, trained = (m.vector("weights", layout.size) for m in (late.sent, late.message))
        delta = trained - start
        cosines = agreement(after - start, delta, self.spans)
        shares = by_span([share(c) for c in cosines], self.spans, layout.size)
        factor = by_span(cosines, self.spans, layout.size) if self.raw else shares
        moved = correction(np.float32(self.scale) * factor, delta, now - after)
        size = float(np.linalg.norm(delta))
        ratio = float(np.linalg.norm(moved)) / size if size else 0.0
        return (now if self.eq == 11 else start) + moved + delta, shares, ratio


@dataclass(frozen=True)
class Rebasing(Method[ServerState, C], ABC):
    """A method that corrects late models: its options, and its server, which starts from the initial model."""

    eq: Literal[10, 11] = option(
        11, "the paper's equation: add a late update to the current model (11) or its start (10)"
    )
    per: Literal["tensor", "stages", "net"] = option("tensor", "one cosine per tensor, per stage, or for the whole net")
    raw: bool = option(False, "scale the correction by the cosine itself")
    lambda_dc: float = option(1.0, "scale of the correction", ge=0)

    def start_server(self, task: Task) -> ServerState:
        """The server has the initial model."""
        return ServerState(task.initial)

    def correction(self, layout: Layout) -> Correction:
        """Return the correction with these options."""
        return Correction(self.eq, self.raw, self.lambda_dc, spans_of(layout, self.per))


def spans_of(layout: Layout, per: str) -> list[list[slice]]:
    """Return the spans of one cosine each: tensors, stages, or the whole net."""
    if per == "net":
        return [whole_net(layout)]
    return [[t.slice] for t in layout.tensors] if per == "tensor" else list(stage_spans(layout).values())
