"""The exchange before round 1, in messages that are counted: owners agree on one schema.

Each owner describes its training rows (:func:`describe_rows`), the server makes one schema of all descriptions
(:func:`agree`), and each owner prepares its rows by it (:func:`apply`). A simulation and a network call the same three
functions. Validation and test rows are never used. An error in a description names its owner.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.data.schema.agreed import CategoryColumn, NumberColumn, SharedSchema, schema_of
from sparsona.data.schema.alike import same_category_kind, same_columns, same_inputs, same_kinds
from sparsona.data.schema.cells import in_order
from sparsona.data.schema.columns import as_option
from sparsona.data.schema.description import Head, OwnerDescription, describe_rows, input_moments
from sparsona.data.schema.limits import MOST_ALONE, MOST_VALUES
from sparsona.data.schema.moments import ColumnMoments, Doubles, pooled
from sparsona.data.schema.plausible import FAR, refuse_implausible
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import Number, Schema
from sparsona.data.schema.spelling import refuse_variants
from sparsona.data.schema.target import Kind, Task, infer
from sparsona.errors import DataError, WireError
from sparsona.message import Message
from sparsona.wire import Ledger, Limit, decode, encode

LIMIT = Limit(elements=2**24)
MANY_WORDS = 2**20
"""Limit of words from one owner, even if the others know fewer."""

Told = Mapping[str, OwnerDescription]
"""The owners' descriptions, by "client 'name'", in the order of the names."""


def agree(descriptions: Mapping[str, Message]) -> Message:
    """Make the shared schema from all owners' descriptions, whose order has no influence.

    Raises `WireError` or `DataError` for a description that is impossible, does not match the others, or disagrees
    grossly with them (:mod:`sparsona.data.schema.plausible`).
    """
    told = _read_all(descriptions)
    _check_plausible(told)
    return _shared(told)


def _read_all(descriptions: Mapping[str, Message]) -> Told:
    heads: dict[bytes, Head] = {}
    told = {f"client {owner!r}": _read(owner, descriptions[owner], heads) for owner in sorted(descriptions)}
    _check_alike(told)
    return told


def _check_plausible(told: Told) -> None:
    first = next(iter(told.values())).head
    numbers = first.numbers
    refuse_implausible(_inputs(told, numbers), numbers or [f"channel {k}" for k in range(first.width)])
    refuse_implausible(_targets(told), first.targets)


def _shared(told: Told) -> Message:
    first = next(iter(told.values())).head
    kinds = _kinds(told)
    kind: Kind = "decimal" if any(one.head.kind == "decimal" for one in told.values()) else first.kind
    _check_names(told, kinds, kind)
    numbers = first.numbers
    mean, std = _scaling(_inputs(told, numbers), first.width)
    task, classes = _task(told, first, kind)
    center, spread = _scaling(_targets(told) if task == "regression" else {}, 0)
    agreed = SharedSchema(
        task=task,
        targets=first.targets,
        classes=in_order(classes, kind != "text") if task == "classification" else (),
        numeric_classes=kind != "text",
        inputs=first.inputs,
        shape=first.shape,
        scaling=first.scaling,
        columns=tuple(_columns(told, first, kinds, numbers)),
        vocabulary=_vocabulary(told) if first.inputs == "tokens" else None,
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


def _read(owner: str, message: Message, heads: dict[bytes, Head]) -> OwnerDescription:
    try:
        return OwnerDescription.read(message, heads)
    except WireError as error:
        raise WireError(f"client {owner!r}: {error}") from None


def _check_alike(told: Told) -> None:
    """Refuse tables that do not match; the error names the client."""
    (called, first), *others = told.items()
    seen = {first.head}
    for other, one in others:
        if one.head not in seen:
            _check_pair(called, first.head, other, one.head)
            seen.add(one.head)


def _check_pair(called: str, a: Head, other: str, b: Head) -> None:
    pair = {called: a, other: b}
    same_inputs({name: head.inputs for name, head in pair.items()})
    same_columns({name: [column for column, _ in head.columns] for name, head in pair.items()})
    same_kinds({name: (head.targets, head.kind) for name, head in pair.items()}, a.task)
    for option in ("task", "scaling", "shape", "spelling"):
        ours, theirs = getattr(a, option), getattr(b, option)
        if ours != theirs:
            raise DataError(f"{other} has {option} {theirs}, {called} has {ours}; give all clients the same")
    held = dict(b.columns)
    for column, kind in a.columns:
        if "number" in (kind, held[column]) and kind != held[column]:
            raise DataError(
                f"column {column!r} is {_role(kind)} of {called} and {_role(held[column])} of {other}; "
                "pass the same --categorical to all"
            )
        if "empty" not in (kind, held[column]) and kind != held[column]:
            same_category_kind(column, {called: kind == "numeric", other: held[column] == "numeric"})


def _role(kind: str) -> str:
    return "a number" if kind == "number" else "categorical"


def _kinds(told: Told) -> dict[str, set[str]]:
    """Return all kinds that each column has at any owner."""
    found: dict[str, set[str]] = {}
    for head in {one.head for one in told.values()}:
        for name, kind in head.columns:
            found.setdefault(name, set()).add(kind)
    return found


def _check_names(told: Told, kinds: Mapping[str, set[str]], kind: Kind) -> None:
    """Refuse too many names, or names that differ only in spelling."""
    first = next(iter(told.values())).head
    names = {name: {who: one.categories[name] for who, one in told.items()} for name in kinds if _named(kinds[name])}
    for column, by_owner in names.items():
        many = len(set().union(*by_owner.values()))
        if many > MOST_VALUES:
            fix = f"pass --drop {as_option(column)}, or group them"
            raise DataError(f"column {column!r} has {many} categories, at most {MOST_VALUES} are possible; {fix}")
    classes = {who: one.classes for who, one in told.items()}
    counts = Counter(name for own in classes.values() for name in set(own))
    for who, own in classes.items():
        alone = sum(counts[name] == 1 for name in set(own))
        if len(told) > 1 and alone > MOST_ALONE:
            raise DataError(
                f"{who} has {alone} classes of {first.targets[0]!r} that no other client has, at most {MOST_ALONE} are "
                "possible; leave it out, or choose another --target"
            )
    texts = {name: by_owner for name, by_owner in names.items() if "text" in kinds[name]}
    if kind == "text":
        texts[first.targets[0]] = classes
    if first.spelling == "alike":
        for column, by_owner in texts.items():
            refuse_variants(column, by_owner)


def _named(kinds: set[str]) -> bool:
    return "number" not in kinds


def _task(told: Told, first: Head, kind: Kind) -> tuple[Task, set[str]]:
    classes = {name for one in told.values() for name in one.classes}
    declared = "multilabel" if first.task == "auto" and len(first.targets) > 1 else first.task
    rows = sum(one.rows for one in told.values())
    return infer(declared, kind, first.targets[0], len(classes), rows, first.inputs == "table"), classes


def _inputs(told: Told, numbers: Sequence[str]) -> dict[str, ColumnMoments]:
    """Return the moments of all owners' columns or channels in one order; None without agreed scaling."""
    return {who: _taken(one.inputs, _places(one.head, numbers)) for who, one in told.items() if one.inputs is not None}


def _targets(told: Told) -> dict[str, ColumnMoments]:
    return {who: one.target for who, one in told.items() if one.target is not None}


def _scaling(found: Mapping[str, ColumnMoments], width: int) -> tuple[Doubles, Doubles]:
    """Return mean and deviation of all owners' rows; `width` zeros and ones without agreed scaling."""
    if not found:
        return np.zeros(width), np.ones(width)
    whole = pooled(found.values())
    return whole.mean, whole.deviation()


def _vocabulary(told: Told) -> int:
    """Return the size of the vocabulary, limited for one owner alone because each model has a row per word."""
    *others, (most, who) = sorted((one.largest, who) for who, one in told.items())
    second = others[-1][0] if others else most
    if most > max(MANY_WORDS, FAR * second):
        fix = "number the words alike, or leave it out"
        raise DataError(f"{who} has a token {most}, the others have none above {second}; {fix}")
    return 1 + most


def _columns(
    told: Told, first: Head, kinds: Mapping[str, set[str]], numbers: Sequence[str]
) -> Iterator[NumberColumn | CategoryColumn]:
    """Return each column as agreed, in the order of the first owner."""
    missing = np.zeros(len(numbers), np.bool_)
    for one in told.values():
        missing |= one.missing[_places(one.head, numbers)]
    flags = dict(zip(numbers, missing.tolist(), strict=True))
    for name, _ in first.columns:
        if name in flags:
            yield name, flags[name]
        else:
            values = {value for one in told.values() for value in one.categories[name]}
            numeric = "text" not in kinds[name]
            yield name, numeric, in_order(values, numeric)


def _taken(found: ColumnMoments, places: Sequence[int] | slice) -> ColumnMoments:
    return ColumnMoments(found.count[places], found.mean[places], found.squares[places])


def _places(head: Head, numbers: Sequence[str]) -> list[int] | slice:
    """Return the owner's own positions of the numeric columns."""
    if head.numbers == numbers:
        return slice(None)
    at = {name: k for k, name in enumerate(head.numbers)}
    return [at[name] for name in numbers]
