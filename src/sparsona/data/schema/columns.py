"""What an owner declares about the columns of a table. What is left open is inferred, or refused if it is ambiguous."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

TaskName = Literal["auto", "classification", "regression", "multilabel"]
Scaling = Literal["agreed", "own", "none"]


def _listed(given: Any) -> Any:
    return tuple(name.strip() for name in given.split(",") if name.strip()) if isinstance(given, str) else given


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""Names of columns: a list, or one text with commas between them."""

InputKind = Literal["auto", "table", "images", "arrays", "tokens"]


@dataclass(frozen=True)
class Columns:
    """The section `columns` of an experiment: what the columns of the owners' tables mean.

    `target`: the column to predict (several for multi-label); empty: the one called label, target, class or y.
    `task`: what the target is; auto: by its values, where they leave no doubt.
    `features`: the columns to learn from; empty: all others. `drop`: columns to leave out.
    `categorical`: columns whose values are names, be they written as text or as numbers.
    `client`: in a file of all clients, the column that says whose row it is.
    `scaling`: agreed: all clients by the mean and deviation of all training rows, which they agree on by messages;
    own: each by those of its own training rows; none: as they are.
    `inputs`: what arrays hold; auto: two axes are a table, uint8 with more are images, others are arrays of channels;
    tokens are the numbers of words and must be said.

    >>> Columns(target=("ill",), categorical=("sex",)).scaling
    'agreed'
    """

    target: Names = ()
    task: TaskName = "auto"
    features: Names = ()
    drop: Names = ()
    categorical: Names = ()
    client: str = ""
    scaling: Scaling = "agreed"
    inputs: InputKind = "auto"


TARGETS = ("label", "target", "class", "y")
"""A column of one of these names is the target, in capitals or not, unless another is declared."""
