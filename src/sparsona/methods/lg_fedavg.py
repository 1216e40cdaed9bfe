"""LG-FedAvg: Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency, "Think Locally, Act Globally: Federated
Learning with Local and Global Representations", 2020. The early layers are the client's own, the last are averaged."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sparsona.layout import Layout
from sparsona.message import Mask, Message
from sparsona.methods import METHODS
from sparsona.methods._split import SplitModel
from sparsona.ops.parts import last_layers
from sparsona.options import option


@METHODS.add
@dataclass(frozen=True)
class LGFedAvg(SplitModel):
    """Private representation, shared last layers, which are averaged over the replies.

    The authors start from a model that FedAvg has trained. Here all clients start from the initial model.
    """

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    top: int = option(2, "number of shared layers at the end (at most all but the first)", ge=1)

    def shared(self, layout: Layout) -> Mask:
        """Return the shared weights: the last layers."""
        return last_layers(layout, min(self.top, len(layout.layers) - 1))

    def weight(self, reply: Message) -> float:
        """Weigh all clients equally."""
        return 1.0
