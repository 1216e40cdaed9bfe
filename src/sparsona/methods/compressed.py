"""FedAvg whose clients send a compressed update; the server sends its whole model.

- Top-k with error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018. A client sends the
  largest entries of its update and keeps the rest for later.
- Random subsampling: Konecny, McMahan, Yu, Richtarik, Suresh, Bacon, "Federated Learning: Strategies for Improving
  Communication Efficiency", 2016. A client sends a random part of its update and the seed behind it.
- QSGD: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
  Encoding", NeurIPS 2017. An update is rounded at random to a few steps of its norm, so that its mean is right, and
  small whole numbers travel.
"""

from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Mask, Message, Sparse, Vector
from sparsona.method import Arrival, C, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import trained_with
from sparsona.methods.averaging import received
from sparsona.ops.masks import scatter
from sparsona.ops.mean import elementwise_mean, weighted_mean
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.ops.sparse import Values, rounded, top_supports, without
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The residual: entries that were not sent yet."""

    residual: Vector


@dataclass(frozen=True)
class GlobalModel(Method[ServerState, C], ABC):
    """A method whose server sends one global model, which all clients use."""

    server: ServerStep = field(default=PLAIN_STEP, kw_only=True)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> C:
        return None  # type: ignore[return-value]  # C is None in methods that do not override this

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def personal_model(self, state: C, down: Message, local: Local) -> Vector:
        return received(down, local)


@METHODS.named("topk")
@dataclass(frozen=True)
class TopK(GlobalModel[ClientState]):
    """FedAvg with top-k updates and error feedback."""

    feedback: ClassVar[str] = "residual"

    density: float = option(0.1, "share of each tensor's entries that is uploaded", gt=0, le=1)
    values: Values = "float32"

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros_like(task.initial))

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, layout = received(down, local), local.layout
        learnt = trained_with(state.residual, start, local)
        if learnt is None:
            return Fit(state, Message(), start)
        trained, wanted = learnt
        taken = Sparse.take(wanted, top_supports(wanted, layout.spans("tensor"), 1 - self.density))
        sent = rounded(taken, layout.lengths, self.values)
        reply = Message(update=sent, examples=local.examples)
        return Fit(ClientState(without(wanted, sent)), reply, trained.weights, if_lost=ClientState(wanted))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = context.task.layout.size
        replies = ((a.message.examples(), a.message.sparse("update", size)) for a in arrivals)
        return server.moved(elementwise_mean(size, replies, absent=True), self.server)


@METHODS.named("subsampling")
@dataclass(frozen=True)
class Subsampling(GlobalModel[None]):
    """FedAvg whose clients upload a fresh random share of their update; the download is dense."""

    keep: float = option(0.5, "share of entries that is uploaded", gt=0, le=1)
    rescale: bool = option(False, "multiply uploaded entries by 1 / keep, so that the update is unbiased")

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        start = received(down, local)
        trained = local.train(start).weights
        seed = int(local.rng("subsample").integers(2**31))
        values = (trained - start)[self.sample(seed, local.layout)]
        return Fit(None, Message(values=values, seed=seed, examples=local.examples), trained)

    def sample(self, seed: int, layout: Layout) -> Mask:
        """Return the weights that a seed stands for."""
        mask = np.ones(layout.size, np.bool_)
        left_out = layout.size - max(1, int(self.keep * layout.size + 0.5))
        rng = np.random.Generator(np.random.PCG64(seed))
        mask[rng.choice(layout.size, left_out, replace=False, shuffle=False)] = False
        return mask

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        def updates() -> Iterator[tuple[float, Vector]]:
            for arrival in arrivals:
                mask = self.sample(abs(arrival.message.integer("seed")), context.task.layout)
                values = arrival.message.vector("values", int(np.count_nonzero(mask)))
                yield arrival.message.examples(), scatter(mask, values)

        step = weighted_mean(updates())
        return server.moved(step / np.float32(self.keep) if self.rescale else step, self.server)


@METHODS.named("qsgd")
@dataclass(frozen=True)
class QSGD(GlobalModel[None]):
    """FedAvg whose updates are rounded at random to a few levels of a norm; integers travel, entropy-coded."""

    levels: int = option(7, "number of levels of the norm", ge=1, le=32767)
    bucket: int = option(512, "number of entries that share a norm (0: the whole tensor)", ge=0)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        start = received(down, local)
        trained = local.train(start).weights
        norms, steps = quantise(trained - start, local.layout.lengths, self.levels, self.bucket, local.rng("qsgd"))
        return Fit(None, Message(steps=steps, norms=norms, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        code, messages = (context.task.layout.lengths, self.levels, self.bucket), (a.message for a in arrivals)
        updates = ((m.examples(), restored(m.vector("norms"), m.numbers("steps"), *code)) for m in messages)
        return server.moved(weighted_mean(updates), self.server)


def buckets(sizes: Sequence[int], bucket: int) -> Iterator[slice]:
    """Yield the entries that share a norm: at most `bucket` of one tensor (0: all)."""
    start = 0
    for size in sizes:
        for first in range(start, start + size, bucket or max(size, 1)):
            yield slice(first, min(first + (bucket or size), start + size))
        start += size


def quantise(
    vector: Vector, sizes: Sequence[int], levels: int, bucket: int, rng: np.random.Generator
) -> tuple[Vector, npt.NDArray[np.int16]]:
    """Round a vector at random, without bias, to `levels` steps of each bucket's norm; return norms and steps."""
    norms, steps = [], np.zeros(len(vector), np.int16)
    for here in buckets(sizes, bucket):
        part = vector[here].astype(np.float64)
        norm = np.float32(np.sqrt(np.square(part).sum()))
        norms.append(norm)
        if norm > 0:
            exact = np.minimum(levels * np.abs(part) / np.float64(norm), levels)
            low = np.floor(exact)
            steps[here] = np.sign(part) * (low + (rng.random(len(part)) < exact - low))
    return np.array(norms, np.float32), steps


def restored(norms: Vector, steps: npt.NDArray[Any], sizes: Sequence[int], levels: int, bucket: int) -> Vector:
    """Return the vector whose entries are norm * step / levels."""
    spans = list(buckets(sizes, bucket))
    if steps.dtype != np.int16 or len(spans) != len(norms) or len(steps) != sum(sizes):
        raise WireError(f"{len(norms)} norms and {len(steps)} {steps.dtype} steps do not fit {sum(sizes)} of int16")
    scale = np.repeat(norms / np.float32(levels), [s.stop - s.start for s in spans])
    out: Vector = steps.astype(np.float32) * scale
    return out
