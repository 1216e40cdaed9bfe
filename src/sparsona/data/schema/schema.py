"""The agreed schema: it turns raw rows into inputs of a model, and outputs into answers."""

from __future__ import annotations

import codecs
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import TypeAdapter, ValidationError

from sparsona.data.dataset import FIELD_TYPES, Array, Dataset, Field
from sparsona.data.schema.columns import Format, InputKind, Scaling, known_separator
from sparsona.data.schema.roles import Task
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.table import in_order, names
from sparsona.errors import WireError, printable


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
        """Return the number of inputs of the net."""
        return 1 + self.indicator


@dataclass(frozen=True)
class Category:
    """A column of names. It becomes one input per value in `values`: 1 for the row's value, else 0.

    A missing or unseen value is 0 everywhere. `numeric`: the names are numbers.
    """

    column: str
    values: tuple[str, ...]
    numeric: bool = False

    @property
    def width(self) -> int:
        """Return the number of inputs of the net: one per value."""
        return len(self.values)


Feature: TypeAlias = Number | Category
UNKNOWN = 1


@dataclass(frozen=True)
class Schema:
    """The preprocessing of raw rows, and the meaning of a model's outputs.

    `features` are the columns of a table, in its order. Samples of several axes have `shape`, and `mean` and `std` per
    channel (images are divided by 255 first). For a numeric target the model predicts (target - center) / spread.
    `numeric_classes`: the classes' names are numbers.
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
    """`published`: by constants of the data set's publisher."""
    vocabulary: int = 0
    """Size of the vocabulary of tokens; a higher token is read as 1, the unknown word."""
    format: Format = field(default_factory=Format)
    """The format of the owners' files, also of files with rows to predict."""
    fields: tuple[Field, ...] = ()
    """The inputs of a sample, if there are several."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of a sample at the model."""
        return (sum(feature.width for feature in self.features),) if self.inputs == "table" else self.shape

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the feature columns in order."""
        return tuple(feature.column for feature in self.features)

    @property
    def categorical(self) -> tuple[str, ...]:
        """Return the categorical columns."""
        return tuple(feature.column for feature in self.features if isinstance(feature, Category))

    @property
    def batch_scaling(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and deviation that scale a batch; None if :meth:`encode` has scaled already."""
        later = self.scaling == "published" or (self.inputs == "images" and self.scaling != "own")
        return (self.mean, self.std) if later else ((), ())

    def encode(self, rows: Rows) -> Array:
        """Return a model's inputs for rows with the columns in any order.

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
        """Return samples of several axes, scaled here or, for images, which stay bytes, in each batch."""
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
        """Return class numbers, with -1 for unseen classes, or the numeric targets themselves."""
        if self.task != "classification":
            values = rows.target
            return values[:, 0] if values.shape[1] == 1 and self.task == "regression" else values
        order = np.array(in_order(self.classes, numeric=False), np.str_)
        number = np.array([self.classes.index(name) for name in order.tolist()], np.int64)
        held = class_names(rows)
        at = np.minimum(np.searchsorted(order, held), len(order) - 1)
        return np.where(order[at] == held, number[at], -1)

    def speak(self, predictions: Array) -> Array:
        """Return predictions as the owner's names of classes, as numbers if all names are numbers.

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
        """Return the schema as documented in docs/models.md."""
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
        """Invert :meth:`to_json`."""
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list | tuple) else value for key, value in tree.items()
        }
        features = [{key: value for key, value in one.items() if key != "kind"} for one in tree["features"]]
        given["features"] = tuple(
            Number(**one) if told["kind"] == "number" else Category(**{**one, "values": tuple(one["values"])})
            for told, one in zip(tree["features"], features, strict=True)
        )
        given["fields"] = tuple(Field(**{**one, "shape": tuple(one["shape"])}) for one in tree.get("fields", ()))
        if "format" in tree:
            given["format"] = Format.from_json(tree["format"])
        return cls(**given)


def published_schema(data: Dataset) -> Schema:
    """Return the schema of a published data set, with its publisher's constants."""
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
    """Return the class name of each row."""
    return names(rows.target if rows.target.ndim == 1 else rows.target[:, 0])


MOST_INPUTS = 10**8
"""Limit of numbers per sample, and of a vocabulary."""
MOST_NAMES = 10**6
"""Limit of columns, categories and classes of one schema together."""
LONGEST_NAME = 10_000

_SCHEMA = TypeAdapter(Schema)
_CHECKED: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Number, Category, Format, Field)}


def told_schema(tree: Any) -> Schema:
    """Return the schema of an untrusted JSON tree; raises `WireError` for invalid types, sizes or numbers."""
    try:
        found = Schema.from_json(tree)
        # pydantic takes an object of a class as it is: so each is given by its fields
        features = tuple(_CHECKED[type(one)].validate_python(vars(one)) for one in found.features)
        written = _CHECKED[Format].validate_python(vars(found.format))
        fields = tuple(_CHECKED[Field].validate_python(vars(one)) for one in found.fields)
        schema = _SCHEMA.validate_python({**vars(found), "features": features, "format": written, "fields": fields})
    except ValidationError as error:
        raise WireError(f"the schema is not valid: {first_problem(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise WireError(f"the schema is not valid ({printable(error, 200)})") from None
    problem = _problem(schema)
    if problem:
        raise WireError(f"the schema is not valid: {problem}")
    return schema


def first_problem(error: ValidationError) -> str:
    """Return the first problem of an untrusted tree, in one printable line without the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    return printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 200)


def _problem(schema: Schema) -> str:
    numbers = [*schema.center, *schema.mean]
    scales = [*schema.spread, *schema.std]
    names = [*schema.targets, *schema.classes]
    for feature in schema.features:
        names.append(feature.column)
        if isinstance(feature, Number):
            numbers.append(feature.mean)
            scales.append(feature.std)
        elif isinstance(feature, Category):
            names += feature.values
    if len(names) > MOST_NAMES or any(len(name) > LONGEST_NAME for name in names):
        return f"at most {MOST_NAMES} names of {LONGEST_NAME} characters are read"
    if not all(map(math.isfinite, numbers)) or not all(math.isfinite(one) and one > 0 for one in scales):
        return "a mean is not finite, or a deviation is not above 0"
    if any(size < 1 for size in schema.shape) or not 0 <= schema.vocabulary <= MOST_INPUTS:
        return "a size is below 1, or too large"
    if any(one.dtype not in FIELD_TYPES or any(size < 1 for size in one.shape) for one in schema.fields):
        return "an input is of an unknown type or shape"
    if math.prod(schema.input_shape) > MOST_INPUTS:
        return f"a sample of {math.prod(schema.input_shape)} numbers, at most {MOST_INPUTS} can be used"
    if len(schema.center) != len(schema.spread) or len(schema.mean) != len(schema.std):
        return "there are more means than deviations, or fewer"
    if not schema.targets or len(set(schema.columns)) < len(schema.columns):
        return "it has no target, or two columns of one name"
    if schema.task == "classification" and len(set(schema.classes)) < max(1, len(schema.classes)):
        return "it has no classes, or two of one name"
    numeric = [value for one in schema.features if isinstance(one, Category) and one.numeric for value in one.values]
    if not all(map(_is_number, [*numeric, *(schema.classes if schema.numeric_classes else ())])):
        return "a category or class that should be a number is none"
    if not _is_usable(schema.format):
        return "the format of its files is unknown"
    return ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_usable(written: Format) -> bool:
    try:
        codecs.lookup(written.encoding)
        return known_separator(written.separator) == written.separator and len(written.decimal) == 1
    except (LookupError, ValueError):
        return False
