"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019. The last
layers are the client's own, the others are averaged; both are trained together."""

from dataclasses import dataclass

from sparsona.layout import Layout
from sparsona.message import Mask
from sparsona.methods import METHODS
from sparsona.methods._split import SplitModel
from sparsona.ops.parts import last_layers
from sparsona.options import option


@METHODS.add
@dataclass(frozen=True)
class FedPer(SplitModel):
    """Shared body, private head."""

    head: int = option(1, "number of private layers at the end", ge=1)

    def shared(self, layout: Layout) -> Mask:
        """Return the shared weights: the body."""
        return ~last_layers(layout, self.head)
