"""Methods with one mask per client: both sides hold it, and only active values travel.

- FedSpa: "Achieving Personalized Federated Learning with Sparse Local Models", 2022 (under double-blind review). Client
  k trains m_k * w, a sparse model cut out of the dense global one by a mask of its own; the mask has the same number of
  active weights in every tensor, for ever. After training the client drops its smallest weights and lets grow those
  with the largest gradients: they start from the server's values. Details not in the paper follow DisPFL's code (Dai et
  al., ICML 2022) and RigL (Evci et al., ICML 2020).
- Sub-FedAvg (unstructured): Vahidian, Morafah, Lin, "Personalized Federated Learning by Structured and Unstructured
  Pruning under Data Heterogeneity", ICDCS Workshops 2021; in the form of FedSpa's comparison (DisPFL's code). Every
  client starts dense and prunes itself, a little in each of its rounds, while it still predicts well.

The first mask follows from the seed, so neither side sends it; later a client sends how its mask changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import ClassVar, Literal

import numpy as np

from sparsona.by_client import ByClient
from sparsona.chance import Chance
from sparsona.layout import Layout
from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.ops.masks import (
    Bits,
    annealed,
    flipped,
    gather,
    majority,
    masked_mean,
    pack,
    random_mask,
    regrown,
    scatter,
    unpack,
)
from sparsona.options import option
from sparsona.training.job import Trained
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The dense global model, and the changed masks of clients."""

    weights: Vector
    masks: ByClient[Bits]

    def mask(self, client: str, first: Mask) -> Mask:
        """Return the mask of a client: the `first` one until it has sent a change."""
        return unpack(self.masks[client], len(first)) if client in self.masks else first


@dataclass(frozen=True)
class ClientState:
    """The client's mask."""

    mask: Bits


def mask_of(state: ClientState, down: Message, size: int) -> Mask:
    """Return the mask of this downlink's values: the client's own, unless the downlink brings one."""
    return down.positions("mask").mask() if "mask" in down else unpack(state.mask, size)


def received(down: Message, mask: Mask) -> Vector:
    """Return the sparse model of a downlink."""
    return scatter(mask, down.vector("values", int(np.count_nonzero(mask))))


@dataclass(frozen=True)
class Masked(Method[ServerState, ClientState], ABC):
    """A method with one mask per client, and a dense global model on the server."""

    @abstractmethod
    def first_mask(self, task: Task, client: ClientId) -> Mask:
        """Return a client's mask before its first turn, which follows from the seed."""

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, ByClient())

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(pack(self.first_mask(task, client)))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return received(down, mask_of(state, down, local.layout.size))


def next_mask_of(arrival: Arrival, mask: Mask) -> Mask:
    """Return the mask after the change in a reply."""
    return flipped(mask, arrival.message.positions("change")) if "change" in arrival.message else mask


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
