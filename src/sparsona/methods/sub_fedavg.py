"""Sub-FedAvg (unstructured): Vahidian, Morafah, Lin, "Personalized Federated Learning by Structured and Unstructured
Pruning under Data Heterogeneity", ICDCS Workshops 2021; in the form of FedSpa's comparison (DisPFL's code).

Every client starts dense and prunes itself, a little in each of its rounds, while it still predicts well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._masked import ClientState, Masked, ServerState, mask_of, next_mask_of, received
from sparsona.ops.masks import (
    Bits,
    masked_mean,
    pack,
    scatter,
)
from sparsona.options import option
from sparsona.training.job import Trained
from sparsona.training.local import Local


@METHODS.named("sub-fedavg")
@dataclass(frozen=True)
class SubFedAvg(Masked):
    """Clients prune their models step by step; each weight is averaged over the clients that still have it.

    One local epoch gives one mask, so nothing is ever pruned then: use at least two.
    """

    no_budget: ClassVar[str] = "sub-fedavg prunes by the raw score on the training rows"

    rate: float = option(0.05, "share of a tensor's active weights that one step prunes", ge=0, le=1)
    target: float = option(0.5, "share of all weights at which a client stops pruning", ge=0, le=1)
    distance: float = option(
        1e-4, "distance of the masks after the first and the last local epoch from which a client prunes", ge=0, le=1
    )
    accuracy: float = option(0.5, "least accuracy of the pruned model on the training samples", ge=0, le=1)
    land: bool = option(False, "shorten the last step so that pruning ends at the target")

    def first_mask(self, task: Task, client: ClientId) -> Mask:
        return np.ones(task.layout.size, np.bool_)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(values=server.weights[server.mask(to, self.first_mask(context.task, to))])

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        mask = mask_of(state, down, local.layout.size)
        early, late = _train(received(down, mask), mask, local)
        following = self.next_mask(mask, early.weights, late.weights, local)
        trained = np.where(following, late.weights, np.float32(0))
        reply = Message(values=trained[following], change=Positions.of(mask ^ following))
        return Fit(ClientState(pack(following)), reply, trained, if_lost=ClientState(pack(mask)))

    def next_mask(self, mask: Mask, early: Vector, late: Vector, local: Local) -> Mask:
        """Return the mask after this round: pruned by a step, if the conditions hold."""
        layout, density = local.layout, float(mask.mean())
        if density <= self.target:
            return mask
        rate = min(self.rate, 1 - self.target / density) if self.land else self.rate
        one, two = (pruned(mask, weights, rate, layout) for weights in (early, late))
        moved = np.mean([(one[t.slice] != two[t.slice]).mean() for t in layout.tensors])
        if moved <= self.distance or local.score(np.where(two, late, np.float32(0))) <= self.accuracy:
            return mask
        return two

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        """At each position the mean over its trainers; what they have just pruned counts as their zero."""
        changed: dict[ClientId, Bits] = {}

        def replies() -> Iterator[tuple[Mask, Vector]]:
            for arrival in arrivals:
                mask = server.mask(arrival.client, self.first_mask(context.task, arrival.client))
                following = next_mask_of(arrival, mask)
                changed[arrival.client] = pack(following)
                values = arrival.message.vector("values", int(np.count_nonzero(following)))
                yield mask, scatter(following, values)[mask]

        weights = masked_mean(server.weights, replies(), everyone=False)
        return ServerState(weights, server.masks | changed)


def _train(start: Vector, mask: Mask, local: Local) -> tuple[Trained, Trained]:
    """Return the models after the first epoch (the first step, where the config counts steps) and after the last."""
    config = local.config
    first, rest = replace(config, epochs=1), replace(config, epochs=max(1, config.epochs - 1))
    if config.steps is not None:
        first, rest = replace(config, steps=1), replace(config, steps=max(1, config.steps - 1))
    early = local.train(start, first, mask=mask)
    if (config.steps or config.epochs) == 1:
        return early, early
    return early, local.train(early.weights, rest, mask=mask, moments=early.moments, stream="rest")


def pruned(mask: Mask, weights: Vector, rate: float, layout: Layout) -> Mask:
    """Return the mask without the active entries that are below the `rate`-quantile of their tensor's magnitudes.

    Biases, and batch norms called ``bn``, are not pruned.
    """
    out = mask.copy()
    for t in layout.tensors:
        if "weight" in t.name and "bn" not in t.name and mask[t.slice].any():
            size = np.abs(weights[t.slice].astype(np.float64))
            out[t.slice] &= size >= np.quantile(size[mask[t.slice]], rate)
    return out
