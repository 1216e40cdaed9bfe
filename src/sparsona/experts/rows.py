"""The rows of one client for experts: one flat row of numbers per sample, and its learnt target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.errors import InputError
from sparsona.training.local import Local
from sparsona.training.objective import balanced_weights

Kind: TypeAlias = Literal["classification", "regression", "multilabel"]

FOLDS = 5
FEWEST = 10
"""Rows. With fewer there is nothing to cross-validate, and an expert answers with a constant."""


@dataclass(frozen=True)
class OwnRows:
    """Training rows, validation rows, and the numbers that a model gives for each.

    `targets` are class numbers of shape (n,), or numbers and labels of shape (n, outputs); a NaN label is unknown.
    """

    kind: Kind
    outputs: int
    inputs: Array
    targets: Array
    held_inputs: Array
    held_targets: Array
    seed: int
    balanced: bool = False
    """Whether every class counts the same in training, however many rows it has."""

    def weights(self, targets: Array) -> Array | None:
        """Return a weight per row by its class among the training rows; None where all rows count the same."""
        return balanced_weights(self.targets, self.outputs)[targets] if self.balanced else None

    def joined(self) -> OwnRows:
        """Return training and validation rows together as training rows."""
        inputs = np.concatenate([self.inputs, self.held_inputs])
        targets = np.concatenate([self.targets, self.held_targets])
        return replace(self, inputs=inputs, targets=targets, held_inputs=inputs[:0], held_targets=targets[:0])

    def known(self, output: int) -> OwnRows:
        """Return the rows for one of several outputs: those whose target is known."""
        kept, held = (~np.isnan(part[:, output]) for part in (self.targets, self.held_targets))
        return replace(
            self,
            outputs=1,
            inputs=self.inputs[kept],
            targets=self.targets[kept, output],
            held_inputs=self.held_inputs[held],
            held_targets=self.held_targets[held, output],
        )

    def folds(self) -> Iterator[tuple[Indices, Indices]]:
        """Yield the training rows' places to fit on and to check on, `FOLDS` times; labels are spread evenly."""
        order = np.random.default_rng(self.seed).permutation(len(self.inputs))
        order = order[np.argsort(self.targets[order], kind="stable")] if self.targets.ndim == 1 else order
        for fold in range(FOLDS):
            here = np.arange(len(order)) % FOLDS == fold
            yield np.sort(order[~here]), np.sort(order[here])


def own_rows(local: Local) -> OwnRows:
    """Return the rows of one client.

    Raises `InputError` for text: a token's number is a name, and no expert here reads names.
    """
    inputs, targets = local.rows("train")
    held_inputs, held_targets = local.rows("validation")
    if inputs.dtype.kind != "f":
        raise InputError("trees and linear models read tables and images, not text: use local, or pool=alone")
    seed = int(local.runner.chance.rng("expert", client=local.client).integers(2**31))
    kind = local.runner.objective.task
    if local.task.classes:
        balanced = local.config.class_weights == "balanced"
        return OwnRows("classification", local.task.classes, inputs, targets, held_inputs, held_targets, seed, balanced)
    targets, held_targets = (part.reshape(len(part), -1) for part in (targets, held_targets))
    found: Kind = "multilabel" if kind == "multilabel" else "regression"
    return OwnRows(found, targets.shape[1], inputs, targets, held_inputs, held_targets, seed)
