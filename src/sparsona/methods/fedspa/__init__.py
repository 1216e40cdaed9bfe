"""FedSpa: "Achieving Personalized Federated Learning with Sparse Local Models", 2022 (under double-blind review).

ClientState k trains m_k * w, a sparse model cut out of the dense global one by a mask of its own; the mask has the same
number of active weights in every tensor, for ever. After training the client drops its smallest weights and lets grow
those with the largest gradients: they start from the server's values. Details not in the paper follow DisPFL's code
(Dai et al., ICML 2022) and RigL (Evci et al., ICML 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sparsona.chance import Chance
from sparsona.layout import Layout
from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._masked import ClientState, Masked, ServerState, received
from sparsona.methods.fedspa.erk import active_counts
from sparsona.ops.masks import annealed, majority, masked_mean, pack, random_mask, regrown, unpack
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedSpa(Masked):
    """A sparse model of its own for every client, cut out of one global model by a mask that it searches for.

    `density` of the weights are active, spread over the tensors by `init`; without `mask_1d` biases and norms stay
    dense. `search`: rsm keeps the first masks, dst moves a share of each, `alpha` at first and none in the last round.
    `agg`: a weight moves by the mean over all who reply (mean) or over those who have it active (count).
    `newcomer`: who joins after training starts from the first mask, or from what most clients have found.
    """

    density: Annotated[float, Field(gt=0, le=1)] = 0.5
    search: Literal["dst", "rsm"] = "dst"
    init: Literal["erk", "uniform"] = "erk"
    same_init: bool = True
    regrow: Literal["gradient", "random"] = "gradient"
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    agg: Literal["mean", "count"] = "mean"
    mask_1d: bool = True
    newcomer: Literal["initial", "majority"] = "initial"

    def first_mask(self, task: Task, client: ClientId) -> Mask:
        owner = "" if self.same_init else client
        return _first_mask(task.layout, task.chance, owner, self.density, self.init == "uniform", self.mask_1d)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        joins = to not in context.task.clients and to not in server.masks
        if self.newcomer == "initial" or not joins or not server.masks:
            return super().send(server, to, context)
        size = context.task.layout.size
        mask = majority((unpack(bits, size) for bits in server.masks.values()), context.task.layout)
        return Message(values=server.weights[mask], mask=Positions.of(mask))

    def fit(self, client: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        return self._turn(client, down, local, annealed(self.alpha, local.round, local.task.rounds))

    def adapt(self, client: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        """A new client's one mask search is as bold as the others' first."""
        return self._turn(client, down, local, self.alpha)

    def _turn(self, client: ClientState, down: Message, local: Local, rate: float) -> Fit[ClientState]:
        mask = client.held(down, local.layout.size)
        trained = local.train(received(down, mask), mask=mask).weights
        if self.search == "rsm":
            return Fit(client, Message(values=trained[mask]), trained)
        following = self.next_mask(mask, trained, rate, local)
        reply = Message(values=trained[mask], change=Positions.of(mask ^ following))
        return Fit(ClientState(pack(mask), pack(following), local.round), reply, trained)

    def next_mask(self, mask: Mask, trained: Vector, rate: float, local: Local) -> Mask:
        """Tensor by tensor, a share `rate` of the active weights gives way to the inactive ones that want most to move.

        Nothing is set to zero: what has grown meets the server's weights in the next downlink.
        """
        if rate == 0:
            return mask
        if self.regrow == "gradient":
            scores = local.gradient(trained, local.config.batch)
        else:
            scores = local.rng("regrow").random(local.layout.size, np.float32)
        out = mask.copy()
        for t in local.layout.parameters:
            if not mask[t.slice].all():
                out[t.slice] = regrown(mask[t.slice], trained[t.slice], scores[t.slice], rate)
        return out

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        """w <- w - 1/S * sum of U_k, U_k = start - trained: the mean of the trained models, where w fills the gaps. A
        late one is taken along to where w is now."""
        masks = dict(server.masks)

        def replies() -> Iterator[tuple[Mask, Vector]]:
            for arrival in arrivals:
                mask, following = self.read(server, arrival, context.task)
                if self.search == "dst":
                    masks[arrival.client] = pack(following)
                values = arrival.message.vector("values", int(np.count_nonzero(mask)))
                if arrival.round < context.round:
                    values = values + (server.weights - server.at(arrival.round))[mask]
                yield mask, values

        weights = masked_mean(server.weights, replies(), everyone=self.agg == "mean")
        return ServerState(weights, masks, server.awaited(context.waiting))


@lru_cache(maxsize=4)
def _first_mask(layout: Layout, chance: Chance, owner: str, density: float, uniform: bool, mask_1d: bool) -> Mask:
    counts = active_counts(layout, density, uniform=uniform, mask_1d=mask_1d)
    mask = random_mask(layout, counts, lambda layer: chance.rng("first mask", client=owner, layer=layer))
    mask.flags.writeable = False
    return mask
