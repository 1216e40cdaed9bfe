"""A model that was refitted on training and validation rows, beside the one that never saw the validation rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from sparsona.experts.arrays import Constant, LinearModel
from sparsona.experts.forest import Trees
from sparsona.message import Vector
from sparsona.method import Model

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
    """Return the model without what is only there for validation scores: what is saved and exported."""
    out: Model = _with(model, lambda found: found.used)
    return out


def held_out(model: Model) -> Model:
    """Return the model as it was before it saw validation rows; the same object where it has not seen any."""
    out: Model = _with(model, lambda found: found.checked)
    return out


def _with(value: Any, chosen: Callable[[Refitted], ExpertModel]) -> Any:
    """Return a model with one of the two in the place of every refitted one; itself where it holds none."""
    if isinstance(value, Refitted):
        return chosen(value)
    if isinstance(value, int | float | str):  # models of blocks hold thousands
        return value
    if isinstance(value, tuple):
        inner = tuple(_with(one, chosen) for one in value)
        return inner if any(new is not old for new, old in zip(inner, value, strict=True)) else value
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    changed = {name: new for name, old in held.items() if (new := _with(old, chosen)) is not old}
    return dataclasses.replace(value, **changed) if changed else value
