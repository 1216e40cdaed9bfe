"""FedSpa: "Achieving Personalized Federated Learning with Sparse Local Models", 2022 (under double-blind review).

Client k trains m_k * w, a sparse model cut out of the dense global one by a mask of its own; the mask has the same
number of active weights in every tensor, for ever. After training the client drops its smallest weights and lets grow
those with the largest gradients: they start from the server's values. Details not in the paper follow DisPFL's code
(Dai et al., ICML 2022) and RigL (Evci et al., ICML 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np

from sparsona.chance import Chance
from sparsona.layout import Layout
from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods._masked import ClientState, Masked, ServerState, mask_of, next_mask_of, received
from sparsona.ops.masks import (
    Bits,
    annealed,
    gather,
    majority,
    masked_mean,
    pack,
    random_mask,
    regrown,
    unpack,
)
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.named("fedspa")
@dataclass(frozen=True)
class FedSpa(Masked):
    """One sparse model per client, cut out of a global model by a mask that the client searches for."""

    density: float = option(0.5, "share of weights that is active", gt=0, le=1)
    search: Literal["dst", "rsm"] = option("dst", "move the masks (dst), or keep the random initial masks (rsm)")
    init: Literal["erk", "uniform"] = option("erk", "how the density is spread over the tensors")
    same_init: bool = option(True, "all clients start from one mask")
    regrow: Literal["gradient", "random"] = option("gradient", "activate weights by largest gradient, or at random")
    alpha: float = option(0.5, "share of a mask that the first search moves; falls to 0 in the last round", ge=0, le=1)
    agg: Literal["mean", "count"] = option("mean", "average over all replies, or over those with the weight active")
    mask_1d: bool = option(True, "mask biases and normalisation layers, too")
    newcomer: Literal["initial", "majority"] = option("initial", "mask of a client that joins after training")

    def first_mask(self, task: Task, client: ClientId) -> Mask:
        owner = "" if self.same_init else client
        return _first_mask(task.layout, task.chance, owner, self.density, self.init == "uniform", self.mask_1d)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        joins = to not in context.task.clients and to not in server.masks
        if self.newcomer == "initial" or not joins or not server.masks:
            return Message(values=gather(server.mask(to, self.first_mask(context.task, to)), server.weights))
        size = context.task.layout.size
        mask = majority((unpack(bits, size) for bits in server.masks.values()), context.task.layout)
        return Message(values=server.weights[mask], mask=Positions.of(mask))

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        return self._turn(state, down, local, annealed(self.alpha, local.round, local.task.rounds))

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        """Search a new client's mask once, at the rate of the others' first search."""
        return self._turn(state, down, local, self.alpha)

    def _turn(self, state: ClientState, down: Message, local: Local, rate: float) -> Fit[ClientState]:
        mask = mask_of(state, down, local.layout.size)
        trained = local.train(received(down, mask), mask=mask).weights
        if self.search == "rsm":
            return Fit(state, Message(values=gather(mask, trained)), trained)
        following = self.next_mask(mask, trained, rate, local)
        reply = Message(values=gather(mask, trained), change=Positions.of(mask ^ following))
        return Fit(ClientState(pack(following)), reply, trained, if_lost=ClientState(pack(mask)))

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps() + (self.search == "dst" and self.regrow == "gradient"))

    def next_mask(self, mask: Mask, trained: Vector, rate: float, local: Local) -> Mask:
        """Replace, per tensor, a share `rate` of the active weights by the inactive ones with the largest gradients.

        Nothing is set to zero: new weights get the server's values in the next downlink.
        """
        if rate == 0:
            return mask
        if self.regrow == "gradient":
            scores = local.gradient(trained, local.config.batch)
        else:
            scores = local.rng("regrow").random(local.layout.size, np.float32)
        return regrown(mask, trained, scores, rate, local.layout.spans("tensor"))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        """w <- w - 1/S * sum of U_k, where U_k = start - trained on the client's mask."""
        changed: dict[ClientId, Bits] = {}

        def replies() -> Iterator[tuple[Mask, Vector]]:
            for arrival in arrivals:
                mask = server.mask(arrival.client, self.first_mask(context.task, arrival.client))
                trained = arrival.message.vector("values", int(np.count_nonzero(mask)))
                if arrival.round < context.round:
                    trained = server.weights[mask] + (trained - arrival.sent.vector("values", len(trained)))
                if self.search == "dst":
                    changed[arrival.client] = pack(next_mask_of(arrival, mask))
                yield mask, trained

        weights = masked_mean(server.weights, replies(), everyone=self.agg == "mean")
        return ServerState(weights, server.masks | changed)


@lru_cache(maxsize=4)
def _first_mask(layout: Layout, chance: Chance, owner: str, density: float, uniform: bool, mask_1d: bool) -> Mask:
    counts = active_counts(layout, density, uniform=uniform, mask_1d=mask_1d)
    mask = random_mask(layout, counts, lambda layer: chance.rng("first mask", client=owner, layer=layer))
    mask.flags.writeable = False
    return mask


def erk(shapes: Sequence[tuple[int, ...]], density: float) -> list[float]:
    """Return densities of tensors that keep a share `density` of all entries: the Erdos-Renyi kernel of RigL.

    A tensor's density is proportional to (sum of its dimensions) / (their product), so that small tensors stay
    denser; what would have to be denser than 1 is dense, and the others share the rest.
    """
    if density >= 1:
        return [1.0] * len(shapes)
    sizes = [prod(shape) for shape in shapes]
    raw = [sum(shape) / prod(shape) if shape else 1.0 for shape in shapes]
    sparse = set(range(len(shapes)))
    while sparse:
        ones = sum(density * sizes[i] if i in sparse else (density - 1) * sizes[i] for i in range(len(shapes)))
        scale = ones / sum(raw[i] * sizes[i] for i in sparse)
        most = max(raw[i] for i in sparse)
        if most * scale <= 1:
            return [scale * raw[i] if i in sparse else 1.0 for i in range(len(shapes))]
        sparse -= {i for i in sparse if raw[i] == most}
    return [1.0] * len(shapes)


def active_counts(layout: Layout, density: float, *, uniform: bool = False, mask_1d: bool = True) -> list[int]:
    """Return the number of active entries per tensor: by ERK, or one `density` for all.

    Without `mask_1d` biases and norms are dense, and the share `density` is for the other tensors.
    """
    masked = [t for t in layout.tensors if mask_1d or len(t.shape) > 1]
    shares = [density] * len(masked) if uniform else erk([t.shape for t in masked], density)
    found = {t.name: int(share * t.size) for t, share in zip(masked, shares, strict=True)}
    return [found.get(t.name, t.size) for t in layout.tensors]
