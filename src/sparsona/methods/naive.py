"""Naive: every client answers with its most frequent class, or with its mean. No model should be worse."""

from dataclasses import dataclass
from typing import ClassVar

from sparsona.experts.alone import ExpertName
from sparsona.methods import METHODS
from sparsona.methods._alone import LocalExpert


@METHODS.add
@dataclass(frozen=True)
class Naive(LocalExpert):
    """Each client answers with its class frequencies or its own mean; nothing travels."""

    expert: ClassVar[ExpertName] = "naive"
