"""LG-FedAvg: Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency, "Think Locally, Act Globally: Federated
Learning with Local and Global Representations", 2020. The early layers are the client's own, the last are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.methods import METHODS
from sparsona.methods._split import Split
from sparsona.ops.parts import last_layers
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class LGFedAvg(Split):
    """Private representation, shared last `top` layers, whose plain mean over the replies is the next.

    The authors start from a model that FedAvg has trained; here all start from the initial one.
    """

    top: Annotated[int, Field(ge=1)] = 2

    def shared(self, layout: Layout) -> Mask:
        return last_layers(layout, self.top)

    def weight(self, message: Message) -> float:
        return 1.0

    def train(self, start: Vector, shared: Mask, local: Local) -> Vector:
        return local.train(start).weights
