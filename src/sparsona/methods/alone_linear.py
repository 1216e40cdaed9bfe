"""Alone with a linear model: every client fits logistic or ridge regression on its own rows, and nothing travels."""

from dataclasses import dataclass
from typing import ClassVar

from sparsona.experts.alone import ExpertName
from sparsona.methods import METHODS
from sparsona.methods._alone import LocalExpert


@METHODS.add
@dataclass(frozen=True)
class AloneLinear(LocalExpert):
    """Each client fits logistic or ridge regression on its own rows; nothing travels."""

    expert: ClassVar[ExpertName] = "linear"
