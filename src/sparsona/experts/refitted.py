"""A model that was refitted on training and validation rows, beside the one that never saw the validation rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from sparsona.experts.arrays import Constant, LinearModel
from sparsona.experts.forest import Trees
from sparsona.message import Vector
from sparsona.method import Model
from sparsona.tree import replaced

ExpertModel: TypeAlias = Constant | LinearModel | Trees


@dataclass(frozen=True)
class Refitted:
    """`used` is what a client uses and exports. `checked` was trained on training rows only: its validation scores
    are those that choices are made on."""

    used: ExpertModel
    checked: ExpertModel

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the model that is used."""
        return self.used.predict(forward, inputs)


def used(model: Model) -> Model:
    """Return the model to save and export, without the part that only serves validation scores."""
    out: Model = replaced(model, lambda leaf: leaf.used if isinstance(leaf, Refitted) else leaf, Refitted)
    return out


def held_out(model: Model) -> Model:
    """Return the model as it was before it saw validation rows; the same object where it has not seen any."""
    out: Model = replaced(model, lambda leaf: leaf.checked if isinstance(leaf, Refitted) else leaf, Refitted)
    return out
