"""Alone with trees: every client trains boosted trees on its own rows, and nothing travels.

Ke and others, "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017. On tables this is the way
alone that a federation must beat.
"""

from dataclasses import dataclass
from typing import ClassVar

from sparsona.experts.alone import ExpertName
from sparsona.methods import METHODS
from sparsona.methods._alone import LocalExpert


@METHODS.add
@dataclass(frozen=True)
class AloneTrees(LocalExpert):
    """Each client trains LightGBM on its own rows, stopped early and refitted; nothing travels."""

    expert: ClassVar[ExpertName] = "trees"
