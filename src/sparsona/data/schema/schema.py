"""The agreed schema: how a raw row becomes the inputs of a model, and what its outputs mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from sparsona.data.dataset import Array, Dataset, Field
from sparsona.data.schema.cells import in_order, names
from sparsona.data.schema.columns import InputKind, Scaling
from sparsona.data.schema.format import Format
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.target import Task


@dataclass(frozen=True)
class Number:
    """A column of numbers. It becomes (value - mean) / std, 0 where it is missing.

    With `indicator` a second input follows it: 1 where the value is missing, else 0.
    """

    column: str
    mean: float = 0.0
    std: float = 1.0
    indicator: bool = False

    @property
    def width(self) -> int:
        """How many inputs of the net the column becomes."""
        return 1 + self.indicator


@dataclass(frozen=True)
class Category:
    """A column of names. It becomes an input for each of `values`, 1 where it holds that one, else 0.

    A missing value, and one that no training row of anybody has, is 0 everywhere. `numeric`: the names are numbers.
    """

    column: str
    values: tuple[str, ...]
    numeric: bool = False

    @property
    def width(self) -> int:
        """How many inputs of the net the column becomes: one a value."""
        return len(self.values)


Feature: TypeAlias = Number | Category
UNKNOWN = 1


@dataclass(frozen=True)
class Schema:
    """All that lies between a raw row and a model, and between the model and a word of its owner.

    `features` are those of a table, in the order of its columns. Samples of several axes have `shape`, and `mean` and
    `std` of each channel (images are divided by 255 first). `center` and `spread` are those of a target that is a
    number: a model gives (target - center) / spread. `numeric_classes`: the classes' names are numbers.
    """

    task: Task
    targets: tuple[str, ...]
    classes: tuple[str, ...] = ()
    numeric_classes: bool = False
    center: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    inputs: InputKind = "table"
    features: tuple[Feature, ...] = ()
    shape: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scaling: Scaling | Literal["published"] = "agreed"
    """`published`: by constants that came with the data set."""
    vocabulary: int = 0
    """Of tokens: how many numbers of words there are. A higher one is read as 1, the word that is not known."""
    format: Format = field(default_factory=Format)
    """How the owners' files are written, and those that hold rows to predict."""
    fields: tuple[Field, ...] = ()
    """The inputs of a sample where there are several."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a sample as the model gets it."""
        return (sum(feature.width for feature in self.features),) if self.inputs == "table" else self.shape

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to learn from, in order."""
        return tuple(feature.column for feature in self.features)

    @property
    def categorical(self) -> tuple[str, ...]:
        """Those of the columns that hold names."""
        return tuple(feature.column for feature in self.features if isinstance(feature, Category))

    @property
    def batch_scaling(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation by which a batch is scaled when it is made; none where :meth:`encode` has scaled."""
        later = self.scaling == "published" or (self.inputs == "images" and self.scaling != "own")
        return (self.mean, self.std) if later else ((), ())

    def encode(self, rows: Rows) -> Array:
        """The inputs of a model, of rows that hold the columns in any order.

        >>> from sparsona.data.schema.rows import features_of
        >>> from sparsona.data.schema.table import Table
        >>> schema = Schema("classification", ("y",), features=(Number("a", 1, 2, True), Category("b", ("u", "v"))))
        >>> table = Table("", "", {"b": np.array(["v", "w"]), "a": np.array([5.0, np.nan])})
        >>> schema.encode(features_of(table, ("b", "a"), ("b",))).tolist()
        [[2.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]]
        """
        if rows.block is not None:
            return self.encode_block(rows.block)
        out = np.zeros((len(rows.numbers), *self.input_shape), np.float32)
        at, start = {name: k for k, name in enumerate(rows.number_names)}, 0
        for feature in self.features:
            if isinstance(feature, Number):
                values = rows.numbers[:, at[feature.column]]
                missing = np.isnan(values)
                out[:, start] = np.where(missing, 0.0, (values - feature.mean) / feature.std)
                if feature.indicator:
                    out[:, start + 1] = missing
            else:
                held = rows.categories[feature.column]
                for k, value in enumerate(feature.values):
                    out[:, start + k] = held == value
            start += feature.width
        return out

    def encode_block(self, block: Array) -> Array:
        """Samples of several axes, scaled here or, so that images stay bytes, when a batch is made."""
        if self.fields:
            return block
        if self.inputs == "tokens":
            known: Array = np.where(block < self.vocabulary, block, UNKNOWN).astype(np.int32)
            return known
        if self.scaling == "published" or (self.inputs == "images" and self.scaling != "own"):
            return block
        if not self.mean and self.inputs != "images" and block.dtype == np.float32:
            return block
        per_channel = (-1, *(1,) * (block.ndim - 2))
        wide = block.astype(np.float32) / (255 if self.inputs == "images" else 1)
        if self.mean:
            wide -= np.array(self.mean, np.float32).reshape(per_channel)
            wide /= np.array(self.std, np.float32).reshape(per_channel)
        return wide

    def targets_of(self, rows: Rows) -> Array:
        """Class numbers, -1 for a class that no training row of anybody has; else the numbers themselves."""
        if self.task != "classification":
            values = rows.target
            return values[:, 0] if values.shape[1] == 1 and self.task == "regression" else values
        order = np.array(in_order(self.classes, numeric=False), np.str_)
        number = np.array([self.classes.index(name) for name in order.tolist()], np.int64)
        held = class_names(rows)
        at = np.minimum(np.searchsorted(order, held), len(order) - 1)
        return np.where(order[at] == held, number[at], -1)

    def speak(self, predictions: Array) -> Array:
        """Predictions in the owner's words: the names of classes, as numbers where they are numbers.

        >>> Schema("classification", ("y",), ("-1", "1"), True).speak(np.array([1, 0, 1])).tolist()
        [1, -1, 1]
        """
        if self.task != "classification" or not self.classes:
            return predictions
        if not self.numeric_classes:
            return np.array(self.classes, np.str_)[predictions]
        named = np.array([float(name) for name in self.classes])
        return (named.astype(np.int64) if (named == np.floor(named)).all() else named)[predictions]

    def to_json(self) -> dict[str, Any]:
        """As documented in docs/models.md."""
        tree = asdict(self)
        tree["features"] = [
            {"kind": "number" if isinstance(feature, Number) else "category", **asdict(feature)}
            for feature in self.features
        ]
        tree.pop("format")
        if not self.fields:
            tree.pop("fields")
        return tree if self.format == Format() else tree | {"format": self.format.to_json()}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`to_json`.

        >>> schema = Schema("regression", ("y",), features=(Number("a", 0.5, 2.0), Category("b", ("u",))))
        >>> Schema.from_json(schema.to_json()) == schema
        True
        """
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list | tuple) else value for key, value in tree.items()
        }
        given["features"] = tuple(_feature(one) for one in tree["features"])
        given["fields"] = tuple(Field(**{**one, "shape": tuple(one["shape"])}) for one in tree.get("fields", ()))
        if "format" in tree:
            given["format"] = Format.from_json(tree["format"])
        return cls(**given)


def published_schema(data: Dataset) -> Schema:
    """The schema of a data set that comes ready, with its publisher's constants."""
    kinds: dict[str, InputKind] = {"u": "images", "i": "tokens"}
    several = data.targets.ndim == 2
    names = data.class_names or tuple(str(number) for number in range(data.classes))
    return Schema(
        task="classification" if data.classes else "multilabel" if several else "regression",
        targets=tuple(f"y{k}" for k in range(data.targets.shape[1])) if several else ("y",),
        classes=names,
        numeric_classes=names == tuple(str(number) for number in range(data.classes)),
        inputs=kinds.get(data.inputs.dtype.kind, "arrays"),
        shape=tuple(data.inputs.shape[1:]),
        mean=data.mean,
        std=data.std,
        scaling="published",
        vocabulary=data.vocabulary,
        fields=data.fields,
    )


def class_names(rows: Rows) -> Array:
    """The name of each row's class."""
    return names(rows.target if rows.target.ndim == 1 else rows.target[:, 0])


def _feature(tree: Mapping[str, Any]) -> Feature:
    given = {key: value for key, value in tree.items() if key != "kind"}
    if tree["kind"] == "number":
        return Number(**given)
    return Category(**{**given, "values": tuple(given["values"])})
