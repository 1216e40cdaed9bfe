"""The exchange before round 1, in messages that are counted: owners agree on one schema.

Each owner describes its training rows (:func:`describe_rows`), the server makes one schema of all descriptions
(:func:`agree`), and each owner prepares its rows by it (:func:`apply`). A simulation and a network call the same three
functions. Validation and test rows are never used. An error in a description names its owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, model_validator

from sparsona.data.dataset import Array, Indices
from sparsona.data.schema import limits
from sparsona.data.schema.alike import refuse_different, refuse_variants
from sparsona.data.schema.columns import InputKind, Scaling, as_option
from sparsona.data.schema.description import Head, OwnerDescription, describe_rows, input_moments
from sparsona.data.schema.limits import Name, Names, Shape, Targets, WireModel
from sparsona.data.schema.moments import FAR, ColumnMoments, Doubles, pooled, refuse_implausible
from sparsona.data.schema.roles import Kind, Task, infer
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import Category, Feature, Number, Schema
from sparsona.data.schema.table import in_order
from sparsona.errors import DataError, WireError
from sparsona.message import Message
from sparsona.wire import Ledger, Limit, decode, encode

NumberColumn = tuple[Name, bool]
"""A column of numbers, and whether some owner has missing values in it."""

CategoryColumn = tuple[Name, bool, Names]
"""A column of categories, whether their names are numbers, and the names."""


class SharedSchema(WireModel):
    """A schema without its means and deviations."""

    task: Task
    targets: Targets
    classes: Names
    numeric_classes: bool
    inputs: InputKind
    shape: Shape
    scaling: Scaling
    columns: Annotated[tuple[NumberColumn | CategoryColumn, ...], Field(max_length=limits.MOST_COLUMNS)]
    vocabulary: Annotated[int, Field(ge=1, le=limits.MOST_TOKENS)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> SharedSchema:
        if len({column[0] for column in self.columns}) < len(self.columns):
            raise ValueError("two columns have one name")
        if (self.inputs == "table") == bool(self.shape) or (self.inputs == "tokens") != bool(self.vocabulary):
            raise ValueError("samples of several axes have a shape, tokens a vocabulary, a table none of them")
        return self

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [column[0] for column in self.columns if len(column) == 2]

    @property
    def width(self) -> int:
        """Return the number of scaled columns or channels."""
        return self.shape[0] if self.shape else len(self.numbers)

    def message(self, scaling: Mapping[str, Doubles]) -> Message:
        """Return the message to all owners; `scaling` holds mean, std, center and spread. Empty parts are left out."""
        parts: dict[str, Any] = {"schema": limits.pack_text(self.model_dump(mode="json", exclude_none=True))}
        parts |= {name: limits.pack_doubles(values) for name, values in scaling.items() if len(values)}
        return Message(**parts)


_AGREED = TypeAdapter(SharedSchema)


def schema_of(agreed: Message) -> Schema:
    """Return the schema in the server's message; raises :class:`~sparsona.errors.WireError` for an invalid one."""
    tree = limits.read_json(_AGREED, limits.text_in(agreed, "schema"), "schema")
    mean, std = _doubles(agreed, "mean", tree.width), _deviations(agreed, "std", tree.width)
    targets = len(tree.targets) if "center" in agreed else 0
    center, spread = _doubles(agreed, "center", targets), _deviations(agreed, "spread", targets)
    scaled = tree.inputs != "table" and tree.scaling == "agreed"
    return Schema(
        task=tree.task,
        targets=tree.targets,
        classes=tree.classes,
        numeric_classes=tree.numeric_classes,
        center=tuple(center.tolist()),
        spread=tuple(spread.tolist()),
        inputs=tree.inputs,
        features=_features(tree, mean, std),
        shape=tree.shape,
        mean=tuple(mean.tolist()) if scaled else (),
        std=tuple(std.tolist()) if scaled else (),
        scaling=tree.scaling,
        vocabulary=tree.vocabulary or 0,
    )


def _features(tree: SharedSchema, mean: Doubles, std: Doubles) -> tuple[Feature, ...]:
    at = {name: k for k, name in enumerate(tree.numbers)}
    return tuple(
        Number(column[0], float(mean[at[column[0]]]), float(std[at[column[0]]]), column[1])
        if len(column) == 2
        else Category(column[0], column[2], column[1])
        for column in tree.columns
    )


def _doubles(agreed: Message, part: str, size: int) -> Doubles:
    return limits.unpack_doubles(agreed, part, size) if size else np.zeros(0)


def _deviations(agreed: Message, part: str, size: int) -> Doubles:
    found = _doubles(agreed, part, size)
    if (found <= 0).any():
        raise WireError(f"{part!r} holds a deviation that is not above 0")
    return found


LIMIT = Limit(elements=2**24)
MANY_WORDS = 2**20
"""Limit of words from one owner, even if the others know fewer."""

Descriptions = Mapping[str, OwnerDescription]
"""The owners' descriptions, by "client 'name'", in the order of the names; all have the first one's order of columns.
"""


def agree(descriptions: Mapping[str, Message]) -> Message:
    """Make the shared schema from all owners' descriptions, whose order has no influence.

    Raises `WireError` or `DataError` for a description that is impossible, does not match the others, or disagrees
    grossly with them (:mod:`sparsona.data.schema.moments`).
    """
    found = _read_all(descriptions)
    first = next(iter(found.values())).head
    columns = first.numbers or [f"channel {k}" for k in range(first.width)]
    refuse_implausible({who: one.inputs for who, one in found.items() if one.inputs is not None}, columns)
    refuse_implausible({who: one.target for who, one in found.items() if one.target is not None}, first.targets)
    return _shared(found)


def _read_all(descriptions: Mapping[str, Message]) -> Descriptions:
    heads: dict[bytes, Head] = {}
    found: dict[str, OwnerDescription] = {}
    for owner in sorted(descriptions):
        try:
            found[f"client {owner!r}"] = OwnerDescription.read(descriptions[owner], heads)
        except WireError as error:
            raise WireError(f"client {owner!r}: {error}") from None
    (called, first), *others = found.items()
    seen = {first.head}
    for other, one in others:
        if one.head not in seen:
            refuse_different(called, first.head, other, one.head)
            seen.add(one.head)
    return {who: one.in_order(first.head.numbers) for who, one in found.items()}


def _shared(found: Descriptions) -> Message:
    first = next(iter(found.values())).head
    kinds: dict[str, set[str]] = {name: set() for name, _ in first.columns}
    for head in {one.head for one in found.values()}:
        for name, of in head.columns:
            kinds[name].add(of)
    kind: Kind = "decimal" if any(one.head.kind == "decimal" for one in found.values()) else first.kind
    _check_names(found, kinds, kind)
    classes = {name for one in found.values() for name in one.classes}
    declared = "multilabel" if first.task == "auto" and len(first.targets) > 1 else first.task
    rows = sum(one.rows for one in found.values())
    task = infer(declared, kind, first.targets[0], len(classes), rows, first.inputs == "table")
    mean, std = _scaling([one.inputs for one in found.values()], first.width)
    center, spread = _scaling([one.target for one in found.values() if task == "regression"], 0)
    agreed = SharedSchema(
        task=task,
        targets=first.targets,
        classes=in_order(classes, kind != "text") if task == "classification" else (),
        numeric_classes=kind != "text",
        inputs=first.inputs,
        shape=first.shape,
        scaling=first.scaling,
        columns=tuple(_columns(found, first, kinds)),
        vocabulary=_vocabulary(found) if first.inputs == "tokens" else None,
    )
    return agreed.message({"mean": mean, "std": std, "center": center, "spread": spread})


def scaled_alone(schema: Schema, rows: Rows, train: Indices) -> Schema:
    """Return the schema of one owner; without agreed scaling, it is scaled by its own training rows."""
    schema = replace(schema, format=rows.format, fields=rows.fields)
    if schema.scaling != "own" or schema.inputs == "tokens":
        return schema
    found = input_moments(rows.take(train))
    mean, std = found.mean.tolist(), found.deviation().tolist()
    if schema.inputs != "table":
        return replace(schema, mean=tuple(mean), std=tuple(std))
    at = {name: k for k, name in enumerate(rows.number_names)}
    features = tuple(
        replace(f, mean=mean[at[f.column]], std=std[at[f.column]]) if isinstance(f, Number) else f
        for f in schema.features
    )
    return replace(schema, features=features)


def apply(schema: Schema, rows: Rows) -> tuple[Array, Array]:
    """Return inputs and targets of an owner's rows, test rows included."""
    return schema.encode(rows), schema.targets_of(rows)


@dataclass(frozen=True)
class Agreement:
    """The result of an exchange: each client's schema, and the bytes of its messages."""

    schemas: Mapping[str, Schema] = field(default_factory=dict)
    up: Ledger = field(default_factory=Ledger)
    down: Ledger = field(default_factory=Ledger)


def exchange(rows: Rows, train: Mapping[str, Indices], newcomers: Iterable[str] = ()) -> Agreement:
    """Simulate the exchange, with every message encoded and decoded.

    `newcomers` get the schema without contributing to it. Owners with grossly different columns are accepted, because
    all rows are here and :mod:`sparsona.data.doubts` warns about them.
    """
    late = frozenset(newcomers)
    frames = {client: encode(describe_rows(rows, train[client])) for client in sorted(train) if client not in late}
    agreed = encode(_shared(_read_all({client: decode(frame.data, LIMIT) for client, frame in frames.items()})))
    shared = schema_of(decode(agreed.data, LIMIT))  # all receive the same bytes: they are read once
    return Agreement(
        {client: scaled_alone(shared, rows, part) for client, part in train.items()},
        sum((frame.ledger for frame in frames.values()), Ledger()),
        sum((agreed.ledger for _ in train), Ledger()),
    )


def _check_names(found: Descriptions, kinds: Mapping[str, set[str]], kind: Kind) -> None:
    """Refuse too many names, or names that differ only in spelling."""
    first = next(iter(found.values())).head
    named = [name for name, of in kinds.items() if "number" not in of]
    names = {name: {who: one.categories[name] for who, one in found.items()} for name in named}
    for column, by_owner in names.items():
        many = len(set().union(*by_owner.values()))
        if many > limits.MOST_VALUES:
            fix = f"pass --drop {as_option(column)}, or group them"
            raise DataError(
                f"column {column!r} has {many} categories, at most {limits.MOST_VALUES} are possible; {fix}"
            )
    classes = {who: one.classes for who, one in found.items()}
    counts = Counter(name for own in classes.values() for name in set(own))
    for who, own in classes.items():
        alone = sum(counts[name] == 1 for name in set(own))
        if len(found) > 1 and alone > limits.MOST_ALONE:
            most = f"at most {limits.MOST_ALONE} are possible; leave it out, or choose another --target"
            raise DataError(f"{who} has {alone} classes of {first.targets[0]!r} that no other client has, {most}")
    texts = {name: by_owner for name, by_owner in names.items() if "text" in kinds[name]}
    if kind == "text":
        texts[first.targets[0]] = classes
    if first.spelling == "alike":
        for column, by_owner in texts.items():
            refuse_variants(column, by_owner)


def _scaling(owners: Sequence[ColumnMoments | None], width: int) -> tuple[Doubles, Doubles]:
    """Return mean and deviation of all owners' rows; `width` zeros and ones without agreed scaling."""
    known = [one for one in owners if one is not None]
    if not known:
        return np.zeros(width), np.ones(width)
    whole = pooled(known)
    return whole.mean, whole.deviation()


def _vocabulary(found: Descriptions) -> int:
    """Return the size of the vocabulary, limited for one owner alone because each model has a row per word."""
    *others, (most, who) = sorted((one.largest, who) for who, one in found.items())
    second = others[-1][0] if others else most
    if most > max(MANY_WORDS, FAR * second):
        fix = "number the words alike, or leave it out"
        raise DataError(f"{who} has a token {most}, the others have none above {second}; {fix}")
    return 1 + most


def _columns(
    found: Descriptions, first: Head, kinds: Mapping[str, set[str]]
) -> Iterator[NumberColumn | CategoryColumn]:
    """Yield each column as agreed, in the order of the first owner."""
    missing = np.any([one.missing for one in found.values()], axis=0)
    flags = dict(zip(first.numbers, missing.tolist(), strict=True))
    for name, _ in first.columns:
        if name in flags:
            yield name, flags[name]
        else:
            numeric = "text" not in kinds[name]
            yield name, numeric, in_order((value for one in found.values() for value in one.categories[name]), numeric)
