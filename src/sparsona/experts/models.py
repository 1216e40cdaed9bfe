"""Models of one client's rows: a constant, a linear one, and trees, whose predictions need no LightGBM.

A model may be refitted on training and validation rows; the one that never saw the validation rows stays beside it.
They are trained on one flat row of numbers per sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import torch

from sparsona.data.dataset import Array, Indices
from sparsona.errors import InputError
from sparsona.message import Vector
from sparsona.method import Model
from sparsona.training.local import Local
from sparsona.training.objective import balanced_weights
from sparsona.tree import replaced

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


@dataclass(frozen=True)
class Constant:
    """The same outputs for every row: log probabilities of classes, log odds of labels, or numbers."""

    outputs: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs, once per row."""
        return torch.from_numpy(self.outputs).to(inputs.device).repeat(len(inputs), 1)


@dataclass(frozen=True)
class LinearModel:
    """Outputs are `weight` times the inputs plus `bias`: log odds of classes and labels, or numbers."""

    weight: Array
    bias: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs for prepared inputs of any shape."""
        weight, bias = (torch.from_numpy(part).to(inputs.device) for part in (self.weight, self.bias))
        return torch.nn.functional.linear(inputs.flatten(1).float(), weight, bias)


def fit_constant(rows: OwnRows) -> Constant:
    """Return the constant answer: class frequencies, the share of each label, or the mean.

    One more row is spread evenly over all classes.

    >>> x, none = np.zeros((3, 1), np.float32), np.zeros(0, np.int64)
    >>> seen = OwnRows("classification", 2, x, np.array([0, 0, 1]), x[:0], none, 0)
    >>> np.exp(fit_constant(seen).outputs).round(3)
    array([0.625, 0.375], dtype=float32)
    """
    count, targets = len(rows.targets), rows.targets
    if rows.kind == "classification":
        shares = np.bincount(targets, minlength=rows.outputs) / max(count, 1)
        return Constant(np.log(smoothed(shares, count, rows.outputs)).astype(np.float32))
    known = ~np.isnan(targets)
    counts = known.sum(0)
    means = np.where(known, targets, 0.0).sum(0, dtype=np.float64) / np.maximum(counts, 1)
    if rows.kind == "multilabel":
        shares = smoothed(means, counts, 2)
        return Constant((np.log(shares) - np.log1p(-shares)).astype(np.float32))
    return Constant(means.astype(np.float32))


def smoothed(shares: Array, rows: int | Array, classes: int) -> Array:
    """Return probabilities after one more row that is spread evenly over all classes.

    No class is impossible then: a class that a client has never seen costs a finite log loss.
    """
    out: Array = (shares * rows + 1 / classes) / (np.asarray(rows) + 1)
    return out


BATCH = 2**20
"""Rows times trees that are looked at together."""


@dataclass(frozen=True)
class Trees:
    """Boosted trees in LightGBM's text format.

    Of classes there is one forest, whose scores are those of the classes at `places`, which the client has. Of numbers
    and labels there is one forest per output, and an empty text stands for the constant in `base`. `rows` is the number
    of training rows: one more is spread evenly over all classes, so that none is impossible.
    """

    kind: Kind
    forests: tuple[str, ...]
    places: tuple[int, ...]
    base: Vector
    rows: int

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return log probabilities of classes, log odds of labels, or numbers."""
        found = self.outputs(inputs.flatten(1).cpu().numpy())
        return torch.from_numpy(found.astype(np.float32)).to(inputs.device)

    def outputs(self, inputs: Array) -> Array:
        """Return the outputs for rows of numbers, in float64."""
        scores = scores_of(self.joined(), inputs)
        if self.kind == "classification":
            shares = np.exp(scores - scores.max(1, keepdims=True))
            logs: Array = np.log(smoothed(shares / shares.sum(1, keepdims=True), self.rows, len(self.base)))
            return logs
        if self.kind == "multilabel":
            odds = smoothed(1 / (1 + np.exp(-scores)), self.rows, 2)
            scores = np.log(odds) - np.log1p(-odds)
        return scores

    def joined(self) -> Forest:
        """Return all trees as one forest with one score per output."""
        if self.kind == "classification":
            found = read_forest(self.forests[0])
            places = self.places[1:] if found.outputs.max(initial=0) == 0 else self.places
            start = np.full(len(self.base), NEVER)
            start[list(self.places)] = 0.0
            return replace(found, outputs=np.array(places)[found.outputs], start=start)
        start = np.array([0.0 if text else base for text, base in zip(self.forests, self.base, strict=True)])
        each = [
            replace(forest, outputs=np.full(len(forest.roots), place))
            for place, text in enumerate(self.forests)
            if text and (forest := read_forest(text))
        ]
        return _together(each, start)


@dataclass(frozen=True)
class Forest:
    """Trees, their nodes one after another.

    A node sends a row to `left` if its number at `feature` is at most `threshold`, else to `right`. A leaf is a node
    that sends every row to itself and has a `value`. `roots` are the trees' first nodes, and `outputs` the places in
    the scores that the trees add to, which begin at `start`.
    """

    start: Array
    roots: Indices
    outputs: Indices
    feature: Indices
    threshold: Array
    left: Indices
    right: Indices
    value: Array
    depth: int


NEVER = -1e30
"""The score of a class that a client lacks."""


def scores_of(forest: Forest, inputs: Array) -> Array:
    """Return the scores of rows of numbers."""
    step = max(1, BATCH // len(forest.roots))
    parts = [_scores(forest, inputs[begin : begin + step]) for begin in range(0, len(inputs), step)]
    return np.concatenate(parts) if parts else np.zeros((0, len(forest.start)))


def _scores(forest: Forest, inputs: Array) -> Array:
    rows = np.arange(len(inputs))[:, None]
    nodes = np.broadcast_to(forest.roots, (len(inputs), len(forest.roots)))
    for _ in range(forest.depth):
        goes_left = inputs[rows, forest.feature[nodes]] <= forest.threshold[nodes]
        nodes = np.where(goes_left, forest.left[nodes], forest.right[nodes])
    values, out = forest.value[nodes], np.tile(forest.start, (len(inputs), 1))
    for place in np.unique(forest.outputs):
        out[:, place] += values[:, forest.outputs == place].sum(1)
    return out


@lru_cache(maxsize=64)
def read_forest(text: str) -> Forest:
    """Return the trees of a LightGBM text model whose splits are all numeric.

    Raises `InputError` if the text is damaged, or if a split asks whether a value is missing or a category.
    """
    try:
        head, *trees = text.split("\nTree=")
        scores = int(_fields(head)["num_tree_per_iteration"])
        found = _together([_tree(_fields(tree)) for tree in trees], np.zeros(scores))
        return replace(found, outputs=np.arange(len(trees)) % scores, depth=_depth(found))
    except (ValueError, KeyError, IndexError) as error:
        raise InputError(f"the text of the trees is damaged ({error!r}): train or export the model again") from None


def _fields(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _tree(fields: dict[str, str]) -> Forest:
    """Return one tree; its leaves stand behind its splits."""
    leaves = np.array(fields["leaf_value"].split(), np.float64)
    splits = len(leaves) - 1
    names = ("split_feature", "left_child", "right_child", "decision_type")
    feature, left, right, decision = (np.array(fields.get(name, "").split(), np.int64) for name in names)
    threshold = np.array(fields.get("threshold", "").split(), np.float64)
    if not len(feature) == len(left) == len(right) == len(threshold) == len(decision) == splits:
        raise ValueError("a tree has too few or too many splits")
    if (decision & 0b1101).any():
        raise ValueError("a split is on a category or on a missing value")
    own = splits + np.arange(len(leaves))
    left, right = (np.concatenate([np.where(side >= 0, side, splits - 1 - side), own]) for side in (left, right))
    feature, threshold = (np.concatenate([part, np.zeros(len(leaves), part.dtype)]) for part in (feature, threshold))
    none = np.zeros(1, np.int64)
    return Forest(none, none, none, feature, threshold, left, right, np.concatenate([np.zeros(splits), leaves]), 0)


def _depth(forest: Forest) -> int:
    """Return how many splits there are at most from a root to a leaf."""
    left, right = forest.left, forest.right
    if min(left.min(), right.min()) < 0 or max(left.max(), right.max()) >= len(left):
        raise ValueError("a split leads to no node")
    reached, depth = forest.roots, 0
    while (left[reached] != reached).any():
        reached, depth = np.unique(np.concatenate([left[reached], right[reached]])), depth + 1
        if depth > len(left):
            raise ValueError("a tree has a circle")
    return depth


def _together(forests: list[Forest], start: Array) -> Forest:
    """Return several forests as one."""
    before = np.concatenate([[0], np.cumsum([len(forest.value) for forest in forests])[:-1]]).astype(np.int64)

    def moved(name: str) -> Array:
        return np.concatenate([getattr(one, name) + first for one, first in zip(forests, before, strict=True)])

    feature, threshold, value, outputs = (
        np.concatenate([getattr(one, name) for one in forests]) for name in ("feature", "threshold", "value", "outputs")
    )
    depth = max(forest.depth for forest in forests)
    return Forest(start, moved("roots"), outputs, feature, threshold, moved("left"), moved("right"), value, depth)


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
