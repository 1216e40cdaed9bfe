"""FedBN: Li, Jiang, Zhang, Kamp, Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
ICLR 2021. FedAvg, but normalisation layers stay with their clients: scales, shifts and statistics."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sparsona.layout import Layout
from sparsona.message import Mask
from sparsona.methods import METHODS
from sparsona.methods._split import SplitModel
from sparsona.ops.parts import normalisation


@METHODS.add
@dataclass(frozen=True)
class FedBN(SplitModel):
    """FedAvg with private normalisation layers; a model without any is trained as by FedAvg."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    def shared(self, layout: Layout) -> Mask:
        """Return the weights outside of normalisation layers."""
        return ~normalisation(layout)
