"""pFed1BS: Cheng, Zhang, Qiu, Zhang, Li, Feng, "Personalized Federated Learning with Bidirectional Communication
Compression via One-Bit Random Sketching", AAAI 2026 (arXiv 2511.13144). Clients keep their models w_k and send the
signs of a random sketch of them; the server sends the majority's signs v, towards which a term of the loss pulls."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from sparsona.data.dataset import Indices
from sparsona.message import Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.ops.masks import Bits, pack, unpack
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors


@dataclass(frozen=True)
class Sketch:
    """Phi = sqrt(n'/m) S H D, applied without a matrix: D flips signs, H is the orthonormal Walsh-Hadamard matrix of
    the next power of two n', and S takes m of its rows."""

    flips: Vector
    rows: Indices
    size: int

    def of(self, weights: Vector) -> Vector:
        """Return Phi w."""
        padded = np.zeros_like(self.flips)
        padded[: self.size] = weights
        out: Vector = hadamard(padded * self.flips)[self.rows] / np.float32(len(self.rows) ** 0.5)
        return out

    def back(self, values: Vector) -> Vector:
        """Return Phi^T u."""
        padded = np.zeros_like(self.flips)
        padded[self.rows] = values
        out: Vector = (hadamard(padded) * self.flips)[: self.size] / np.float32(len(self.rows) ** 0.5)
        return out


def hadamard(values: Vector) -> Vector:
    """Return the Walsh-Hadamard transform of n numbers, n a power of two, not normalised, in n log n additions.

    >>> hadamard(np.float32([1, 2, 3, 4]))
    array([10., -2., -4.,  0.], dtype=float32)
    """
    out, half = values, 1
    while half < len(values):
        left, right = out.reshape(-1, 2, half).transpose(1, 0, 2)
        out = np.stack([left + right, left - right], axis=1).reshape(-1)
        half *= 2
    return out


@lru_cache(maxsize=4)
def _drawn(seed: int, size: int, count: int) -> Sketch:
    rng, padded = np.random.default_rng(seed), 1 << (size - 1).bit_length()
    flips = rng.choice(np.array([-1, 1], np.float32), padded)
    return Sketch(flips, np.sort(rng.permutation(padded)[:count]), size)


@dataclass(frozen=True)
class ServerState:
    """The consensus v, one bit per row of the sketch; None before the first replies, when v is 0."""

    consensus: Bits | None = None


@dataclass(frozen=True)
class ClientState:
    """The client's model, which never leaves it."""

    own: Vector


@METHODS.add
@dataclass(frozen=True)
class PFed1BS(Method[ServerState, ClientState]):
    """Each client keeps its own model; one-bit sketches of the models travel up, and the majority's signs down."""

    private: ClassVar[tuple[str, ...]] = ("own",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    ratio: float = option(0.1, "bits of a sketch per weight of the model", gt=0, le=1)
    lam: float = option(5e-4, "strength of the pull towards the consensus", ge=0)
    mu: float = option(1e-5, "strength of the pull towards 0", ge=0)
    gamma: float = option(1e4, "steepness of tanh, the smooth sign", gt=0)

    def start_server(self, task: Task) -> ServerState:
        return ServerState()

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if server.consensus is None:
            return Message()
        return Message(consensus=Positions.of(unpack(server.consensus, self._count(context.task))))

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        sketch, rate, count = self.sketch(local.task), np.float32(local.rate), self._count(local.task)
        v = _signs(down.positions("consensus", count)) if "consensus" in down else np.zeros(count, np.float32)

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            (w,) = vectors
            return (w - rate * (batches[0].gradient(w) + self.pull(w, v, sketch)),)

        (own,) = local.iterate((state.own,), step)
        sent = Positions.of(sketch.of(own) >= 0)
        return Fit(ClientState(own), Message(signs=sent, examples=local.examples), own)

    def pull(self, w: Vector, v: Vector, sketch: Sketch) -> Vector:
        """Return lam Phi^T (tanh(gamma Phi w) - v) + mu w, the gradient of the terms without data."""
        apart = np.tanh(np.float32(self.gamma) * sketch.of(w)) - v
        out: Vector = np.float32(self.lam) * sketch.back(apart) + np.float32(self.mu) * w
        return out

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        votes, count = np.zeros(self._count(context.task), np.int64), self._count(context.task)
        for arrival in arrivals:
            votes += arrival.message.examples() * (2 * arrival.message.positions("signs", count).mask().astype(int) - 1)
        return ServerState(pack(votes >= 0))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return state.own

    def sketch(self, task: Task) -> Sketch:
        """Return the sketch that the server and all clients draw from the shared seed."""
        return _drawn(int(task.chance.rng("sketch").integers(2**32)), task.layout.size, self._count(task))

    def _count(self, task: Task) -> int:
        return max(1, int(self.ratio * task.layout.size))


def _signs(positions: Positions) -> Vector:
    """Return 1 at the positions and -1 elsewhere."""
    return np.where(positions.mask(), np.float32(1), np.float32(-1))
