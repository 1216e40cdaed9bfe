"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019. The last
layers are the client's own, the others are averaged; both are trained together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Mask, Vector
from sparsona.methods import METHODS
from sparsona.methods._split import Split
from sparsona.ops.parts import last_layers
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedPer(Split):
    """Shared body, private head of the last `head` layers."""

    head: Annotated[int, Field(ge=1)] = 1

    def shared(self, layout: Layout) -> Mask:
        return ~last_layers(layout, self.head)

    def train(self, start: Vector, shared: Mask, local: Local) -> Vector:
        return local.train(start).weights
