"""Random subsampling: Konecny, McMahan, Yu, Richtarik, Suresh, Bacon, "Federated Learning: Strategies for Improving
Communication Efficiency", 2016. FedAvg whose clients send a random part of their update and the seed behind it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import GlobalModel, received
from sparsona.ops.masks import scatter
from sparsona.ops.mean import weighted_mean
from sparsona.ops.server import ServerState
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class Subsampling(GlobalModel[None]):
    """FedAvg whose clients upload a fresh random share of their update; the download is dense."""

    keep: float = option(0.5, "share of entries that is uploaded", gt=0, le=1)
    rescale: bool = option(False, "multiply uploaded entries by 1 / keep, so that the update is unbiased")

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        start = received(down, local)
        trained = local.train(start).weights
        seed = int(local.rng("subsample").integers(2**31))
        values = (trained - start)[self.sample(seed, local.layout)]
        reply = Message(values=values, seed=seed, examples=local.examples)
        return Fit(None, reply, trained)

    def sample(self, seed: int, layout: Layout) -> Mask:
        """The weights that a seed stands for."""
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
        if self.rescale:
            step /= np.float32(self.keep)
        return server.moved(step, self.server)
