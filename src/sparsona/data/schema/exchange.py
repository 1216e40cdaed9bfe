"""The exchange before round 1: what owners must know of each other's data, as messages that are counted.

Each owner describes its training rows (:func:`describe_rows`), the server makes one schema of the descriptions
(:func:`agree`), and each owner prepares its rows by it (:func:`apply`). A description holds, for a column of numbers,
how many are known, their mean and the sum of squared deviations; for a column of categories and for the classes, the
names that occur. A simulation and a network call the same three functions. Rows that are not for training are never
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.data.schema.alike import same_category_kind, same_columns, same_inputs, same_kinds
from sparsona.data.schema.cells import in_order
from sparsona.data.schema.columns import InputKind, Scaling, TaskName
from sparsona.data.schema.moments import ColumnMoments, moments, pooled
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import Category, Feature, Number, Schema, class_names
from sparsona.data.schema.spelling import Spelling, refuse_variants, variants
from sparsona.data.schema.target import Kind, infer
from sparsona.data.schema.text import pack_doubles, pack_text, unpack_doubles, unpack_text
from sparsona.errors import DataError, WireError
from sparsona.message import Message
from sparsona.wire import Ledger, Limit, decode, encode

LIMIT = Limit(elements=2**24)
CHUNK = 1024
"""Samples of several axes whose moments are taken at a time."""


def describe_rows(rows: Rows, train: Indices) -> Message:
    """An owner's description of its training rows, for the server."""
    seen = rows.take(train)
    head: dict[str, Any] = {
        "columns": [[name, _column_kind(rows, name)] for name in rows.order],
        "targets": rows.targets,
        "kind": seen.kind,
        "inputs": rows.inputs,
        "shape": () if rows.block is None else rows.block.shape[1:],
        "task": rows.task,
        "scaling": rows.scaling,
    }
    if rows.spelling != "alike":
        head["spelling"] = rows.spelling
    parts: dict[str, Any] = {"head": pack_text(head), "rows": len(train)}
    if rows.numbers.shape[1]:
        parts["missing"] = np.isnan(seen.numbers).any(axis=0).astype(np.uint8)
    if rows.scaling == "agreed" and rows.inputs != "tokens":
        parts |= _packed("inputs", _input_moments(seen))
    if rows.inputs == "tokens":
        parts["largest"] = int(seen.block.max()) if seen.block is not None else 0
    if rows.categories:
        found = {name: np.unique(values) for name, values in seen.categories.items()}
        parts["categories"] = pack_text({name: [v for v in values.tolist() if v] for name, values in found.items()})
    if seen.tells_classes:
        parts["classes"] = pack_text(_class_list(seen))
    elif rows.task != "multilabel" and rows.scaling == "agreed":
        parts |= _packed("target", moments(seen.target))
    return Message(**parts)


def agree(descriptions: Mapping[str, Message]) -> Message:
    """The schema that all owners share, from their descriptions. Who came first has no influence."""
    owners = sorted(descriptions)
    messages = [descriptions[owner] for owner in owners]
    heads = _heads(messages)
    called = [f"client {owner!r}" for owner in owners]
    _check_alike(called, heads)
    first = heads[0]
    names = [name for name, _ in first["columns"]]
    kinds = _kinds(heads)
    numbers = [name for name in names if kinds[name] == {"number"}]
    categories = _categories(messages) if len(numbers) < len(names) else {}
    scaled = first["scaling"] == "agreed" and first["inputs"] != "tokens"
    width = len(numbers) if first["inputs"] == "table" else (first["shape"] or [0])[0]
    mean, std = np.zeros(width), np.ones(width)
    if scaled:
        order = [_places(head, numbers) if first["inputs"] == "table" else slice(None) for head in heads]
        found = pooled(
            _taken(_unpacked("inputs", message, width), places) for message, places in zip(messages, order, strict=True)
        )
        mean, std = found.mean, found.deviation()
    rows = [_rows(message) for message in messages]
    classes = sorted({name for message in messages if "classes" in message for name in _names(message, "classes")})
    kind: Kind = "decimal" if "decimal" in {head["kind"] for head in heads} else first["kind"]
    declared: TaskName = "multilabel" if first["task"] == "auto" and len(first["targets"]) > 1 else first["task"]
    task = infer(declared, kind, first["targets"][0], len(classes), sum(rows), first["inputs"] == "table")
    if first["spelling"] == "alike":
        texts = {name: values for name, values in categories.items() if "text" in kinds.get(name, ())}
        if kind == "text":
            texts[first["targets"][0]] = set(classes)
        for column, values in texts.items():
            if variants(values):
                told_of = _told_names(messages, column, first["targets"][0])
                refuse_variants(column, dict(zip(called, told_of, strict=True)))
    center, spread = np.zeros(0), np.ones(0)
    if task == "regression" and first["scaling"] == "agreed":
        told = [_unpacked("target", message, len(first["targets"])) for message in messages]
        center, spread = pooled(told).mean, pooled(told).deviation()
    missing = np.zeros(len(numbers), bool)
    for message, head in zip(messages, heads, strict=True):
        if numbers:
            missing |= _flags(message, len(numbers))[_places(head, numbers)]
    flags = dict(zip(numbers, missing.tolist(), strict=True))
    tree = {
        "task": task,
        "targets": first["targets"],
        "classes": _listed(first["targets"][0], {first["targets"][0]: set(classes)}, kind != "text")
        if task == "classification"
        else [],
        "numeric_classes": kind != "text",
        "inputs": first["inputs"],
        "shape": first["shape"],
        "scaling": first["scaling"],
        "columns": [
            [name, bool(flags[name])]
            if name in flags
            else [name, "text" not in kinds[name], _listed(name, categories, "text" not in kinds[name])]
            for name in names
        ],
    }
    if first["inputs"] == "tokens":
        tree["vocabulary"] = 1 + max(message.integer("largest") for message in messages)
    parts = {"schema": pack_text(tree), "mean": pack_doubles(mean), "std": pack_doubles(std)}
    parts |= {"center": pack_doubles(center), "spread": pack_doubles(spread)}
    return Message(**{name: part for name, part in parts.items() if len(part)})


def schema_of(agreed: Message) -> Schema:
    """The schema that the server's message holds."""
    tree = unpack_text(agreed, "schema")
    numbers = [name for name, *rest in tree["columns"] if len(rest) == 1]
    table = tree["inputs"] == "table"
    width = len(numbers) if table else (tree["shape"] or [0])[0]
    mean, std = (unpack_doubles(agreed, part, width) if width else np.zeros(0) for part in ("mean", "std"))
    targets = len(tree["targets"]) if "center" in agreed else 0
    center, spread = (
        unpack_doubles(agreed, part, targets) if targets else np.zeros(0) for part in ("center", "spread")
    )
    features: list[Feature] = []
    at = {name: k for k, name in enumerate(numbers)}
    for name, *rest in tree["columns"]:
        if len(rest) == 1:
            k = at[name]
            features.append(Number(name, float(mean[k]), float(std[k]), bool(rest[0])))
        else:
            features.append(Category(name, tuple(rest[1]), bool(rest[0])))
    return Schema(
        task=tree["task"],
        targets=tuple(tree["targets"]),
        classes=tuple(tree["classes"]),
        numeric_classes=tree["numeric_classes"],
        center=tuple(center.tolist()),
        spread=tuple(spread.tolist()),
        inputs=tree["inputs"],
        features=tuple(features),
        shape=tuple(tree["shape"]),
        mean=() if table or tree["scaling"] != "agreed" else tuple(mean.tolist()),
        std=() if table or tree["scaling"] != "agreed" else tuple(std.tolist()),
        scaling=tree["scaling"],
        vocabulary=tree.get("vocabulary", 0),
    )


def scaled_alone(schema: Schema, rows: Rows, train: Indices) -> Schema:
    """The schema of an owner whose rows are written as they are. Where the scaling is not agreed on, it is by its own
    training rows."""
    schema = replace(schema, format=rows.format)
    if schema.scaling != "own" or schema.inputs == "tokens":
        return schema
    found = _input_moments(rows.take(train))
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
    """The inputs and targets of an owner's rows, training and test rows alike."""
    return schema.encode(rows), schema.targets_of(rows)


@dataclass(frozen=True)
class Agreement:
    """What came of an exchange: every client's schema, and the bytes of its messages."""

    schemas: Mapping[str, Schema] = field(default_factory=dict)
    up: Ledger = field(default_factory=Ledger)
    down: Ledger = field(default_factory=Ledger)


def exchange(rows: Rows, train: Mapping[str, Indices], newcomers: Iterable[str] = ()) -> Agreement:
    """The whole exchange, for a simulation: every message is encoded and decoded.

    `newcomers` get the schema and have no part in it.
    """
    late = frozenset(newcomers)
    frames = {client: encode(describe_rows(rows, train[client])) for client in sorted(train) if client not in late}
    agreed = encode(agree({client: decode(frame.data, LIMIT) for client, frame in frames.items()}))
    shared = schema_of(decode(agreed.data, LIMIT))  # all receive the same bytes: they are read once
    return Agreement(
        {client: scaled_alone(shared, rows, part) for client, part in train.items()},
        sum((frame.ledger for frame in frames.values()), Ledger()),
        sum((agreed.ledger for _ in train), Ledger()),
    )


def _column_kind(rows: Rows, name: str) -> str:
    if name not in rows.categories:
        return "number"
    if not (rows.categories[name] != "").any():
        return "empty"
    return "numeric" if name in rows.numeric else "text"


def _class_list(seen: Rows) -> list[str]:
    """The names of the classes: those that are declared, else those of the training rows."""
    found: list[str] = np.unique(class_names(seen)).tolist()
    if not seen.classes:
        return found
    unknown = sorted(set(found) - set(seen.classes))
    if unknown:
        raise DataError(f"target {seen.targets[0]!r} holds {unknown[0]!r}, which columns.classes does not name; add it")
    return sorted(seen.classes)


def _input_moments(rows: Rows) -> ColumnMoments:
    if rows.block is None:
        return moments(rows.numbers)
    scale = 255.0 if rows.inputs == "images" else 1.0
    chunks = np.split(rows.block, range(CHUNK, len(rows.block), CHUNK))
    return pooled(moments(np.moveaxis(c, 1, -1).reshape(-1, c.shape[1]).astype(np.float64) / scale) for c in chunks)


def _packed(name: str, found: ColumnMoments) -> dict[str, Any]:
    if not len(found.mean):
        return {}
    return {
        f"{name}.known": found.count.astype(np.int64),
        f"{name}.mean": pack_doubles(found.mean),
        f"{name}.squares": pack_doubles(found.squares),
    }


def _unpacked(name: str, message: Message, width: int) -> ColumnMoments:
    if not width:
        return ColumnMoments(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    known = message.numbers(f"{name}.known")
    squares = unpack_doubles(message, f"{name}.squares", width)
    if known.dtype != np.int64 or len(known) != width or (known < 0).any() or (squares < 0).any():
        raise WireError(f"the description of {name} holds a count or a sum of squares below 0, or not {width} of them")
    return ColumnMoments(known, unpack_doubles(message, f"{name}.mean", width), squares)


def _taken(found: ColumnMoments, places: Sequence[int] | slice) -> ColumnMoments:
    return ColumnMoments(found.count[places], found.mean[places], found.squares[places])


def _heads(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The head of each description. Most are the same bytes: these are read once, and are one object."""
    known: dict[bytes, dict[str, Any]] = {}
    for message in messages:
        data = message.numbers("head").tobytes()
        if data not in known:
            known[data] = _checked(unpack_text(message, "head"))
    return [known[message.numbers("head").tobytes()] for message in messages]


def _checked(given: Any) -> dict[str, Any]:
    """A head that holds all that is read from one: who sent it may be anybody. The usual spelling is not sent."""
    if not isinstance(given, dict):
        raise WireError("the head of a description is not a table of values")
    head: dict[str, Any] = {"spelling": "alike", **given}
    columns, targets, shape = (head.get(key) for key in ("columns", "targets", "shape"))
    good = (
        isinstance(columns, list)
        and all(isinstance(c, list) and len(c) == 2 and all(isinstance(part, str) for part in c) for c in columns)
        and len({name for name, _ in columns}) == len(columns)
        and {kind for _, kind in columns} <= {"number", "numeric", "text", "empty"}
        and isinstance(targets, list)
        and len(targets) > 0
        and all(isinstance(name, str) for name in targets)
        and isinstance(shape, list)
        and all(isinstance(axis, int) and axis > 0 for axis in shape)
        and head.get("kind") in get_args(Kind)
        and head.get("task") in get_args(TaskName)
        and head.get("scaling") in get_args(Scaling)
        and head.get("inputs") in get_args(InputKind)
        and head.get("spelling") in get_args(Spelling)
    )
    if not good:
        raise WireError("the head of a description does not hold what it should")
    return head


def _rows(message: Message) -> int:
    rows = message.integer("rows")
    if rows < 1:
        raise WireError(f"a description claims {rows} training rows, expected at least one")
    return rows


def _names(message: Message, part: str) -> list[str]:
    found: list[str] = unpack_text(message, part)
    if not _are_names(found):
        raise WireError(f"{part!r} holds something else than names")
    return found


def _flags(message: Message, size: int) -> Array:
    found = message.numbers("missing")
    if found.dtype != np.uint8 or len(found) != size:
        raise WireError(f"'missing' is {found.dtype} of length {len(found)}, expected {size} flags")
    return found.astype(bool)


def _categories(messages: Sequence[Message]) -> dict[str, set[str]]:
    """The values of each column of categories, over all owners."""
    found: dict[str, set[str]] = {}
    for message in messages:
        told = unpack_text(message, "categories")
        if not isinstance(told, dict) or not all(_are_names(values) for values in told.values()):
            raise WireError("'categories' holds something else than names by column")
        for name, values in told.items():
            found.setdefault(name, set()).update(values)
    return found


def _told_names(messages: Sequence[Message], column: str, target: str) -> list[list[str]]:
    """What each owner has told of a column of categories, or of the target."""
    if column == target:
        return [_names(message, "classes") for message in messages]
    return [unpack_text(message, "categories").get(column, []) for message in messages]


def _are_names(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(name, str) for name in given)


def _listed(name: str, categories: Mapping[str, set[str]], numeric: bool) -> tuple[str, ...]:
    try:
        return in_order(categories.get(name, set()), numeric)
    except ValueError:
        raise WireError(f"column {name!r} is said to hold numbers, and does not") from None


def _kinds(heads: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """What each column is, to any of the owners."""
    found: dict[str, set[str]] = {}
    for head in {id(head): head for head in heads}.values():
        for name, kind in head["columns"]:
            found.setdefault(name, set()).add(kind)
    return found


def _places(head: Mapping[str, Any], numbers: Sequence[str]) -> list[int]:
    """Where an owner has the columns of numbers, among its own."""
    own = [name for name, kind in head["columns"] if kind == "number"]
    if own == numbers:
        return list(range(len(numbers)))
    at = {name: k for k, name in enumerate(own)}
    return [at[name] for name in numbers]


def _check_alike(called: Sequence[str], heads: Sequence[Mapping[str, Any]]) -> None:
    """Refuse owners whose tables cannot be one; the message names the client."""
    for k in range(1, len(heads)):
        a, b = heads[0], heads[k]
        if a is b:
            continue
        pair = (called[0], a), (called[k], b)
        same_inputs({name: head["inputs"] for name, head in pair})
        same_columns({name: [column for column, _ in head["columns"]] for name, head in pair})
        same_kinds({name: (tuple(head["targets"]), head["kind"]) for name, head in pair}, a["task"])
        for option in ("task", "scaling", "shape", "spelling"):
            if a[option] != b[option]:
                raise DataError(
                    f"{called[k]} has {option} {b[option]}, {called[0]} has {a[option]}; give all clients the same"
                )
        ours, theirs = dict(map(tuple, a["columns"])), dict(map(tuple, b["columns"]))
        for column, kind in ours.items():
            if "number" in (kind, theirs[column]) and kind != theirs[column]:
                raise DataError(
                    f"column {column!r} is {_role(kind)} of {called[0]} and {_role(theirs[column])} of {called[k]}; "
                    "pass the same --categorical to all"
                )
            if "empty" not in (kind, theirs[column]) and kind != theirs[column]:
                same_category_kind(column, {called[0]: kind == "numeric", called[k]: theirs[column] == "numeric"})


def _role(kind: str) -> str:
    return "a number" if kind == "number" else "categorical"
