"""The summary of `data show`: how the owners' tables were read and what was decided."""

from collections.abc import Mapping

import numpy as np

from sparsona.data.dataset import ClientSplit, Indices
from sparsona.data.schema.exchange import Agreement
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import Category, Feature, Number, Schema

Line = tuple[str, str, str]
"""Subject, finding, decision."""

MOST = 30
"""Number of columns that are shown one by one."""


def understood(rows: Rows, splits: Mapping[str, ClientSplit], agreement: Agreement, by: str) -> list[Line]:
    """Return lines about the task, each column, left-out columns, the clients, the split and the exchange."""
    schema = next(iter(agreement.schemas.values()))
    train = np.concatenate([split.train for split in splits.values()])
    what = "classes, categories and scaling" if schema.scaling == "agreed" else "classes and categories"
    return [
        _target(rows, schema, train),
        *_columns(rows, schema, train),
        *((name, "not a feature", f"left out: {why}") for name, why in rows.dropped.items()),
        _clients(splits),
        _split(splits, by),
        *_unseen(rows, schema, splits),
        ("agreement", f"{agreement.up.total} bytes up, {agreement.down.total} down", f"{what}, of training rows only"),
    ]


def _target(rows: Rows, schema: Schema, train: Indices) -> Line:
    names = ", ".join(rows.targets)
    if schema.task != "classification":
        held = rows.target[train]
        numbers = f"{np.nanmin(held):g} to {np.nanmax(held):g}"
        return f"target {names}", "0 and 1" if schema.task == "multilabel" else numbers, schema.task
    counts = np.bincount(schema.targets_of(rows)[train], minlength=len(schema.classes))
    shown = [f"{name} ({count})" for name, count in zip(schema.classes, counts.tolist(), strict=True)]
    more = ", ..." if len(shown) > 8 else ""
    return f"target {names}", ", ".join(shown[:8]) + more, f"classification, {len(schema.classes)} classes"


def _columns(rows: Rows, schema: Schema, train: Indices) -> list[Line]:
    if rows.block is not None:
        shape = "x".join(map(str, schema.shape))
        return [("samples", f"{schema.inputs} of {shape}", _scaled(schema))]
    lines = [(feature.column, *_column(feature, rows, schema, train)) for feature in schema.features[:MOST]]
    rest = len(schema.features) - MOST
    return [*lines, ("...", f"{rest} more columns", "likewise")] if rest > 0 else lines


def _column(feature: Feature, rows: Rows, schema: Schema, train: Indices) -> tuple[str, str]:
    if isinstance(feature, Category):
        held = rows.categories[feature.column][train]
        missing = int((held == "").sum())
        shown = ", ".join(feature.values[:6]) + (", ..." if len(feature.values) > 6 else "")
        return f"categories {shown}" + _missing(missing), f"{feature.width} inputs of 0 and 1"
    values = rows.numbers[train, rows.number_names.index(feature.column)]
    known = values[~np.isnan(values)]
    shown = f"numbers {known.min():g} to {known.max():g}" if len(known) else "numbers, all missing"
    indicator = ", and whether it is missing" if feature.indicator else ""
    return shown + _missing(len(values) - len(known)), _scaled(schema, feature) + indicator


def _missing(count: int) -> str:
    return f", {count} missing" if count else ""


def _scaled(schema: Schema, feature: Number | None = None) -> str:
    if schema.scaling == "agreed":
        return f"(x - {feature.mean:.4g}) / {feature.std:.4g}" if feature else "by channel: (x - mean) / deviation"
    return "scaled by each client's own training rows" if schema.scaling == "own" else "as it is"


def _clients(splits: Mapping[str, ClientSplit]) -> Line:
    sizes = [len(s.train) + len(s.validation) + len(s.test) for s in splits.values()]
    spread = f"{min(sizes)} to {max(sizes)} rows each" if min(sizes) < max(sizes) else f"{sizes[0]} rows each"
    return f"{len(splits)} clients", spread, ", ".join(list(splits)[:6]) + (", ..." if len(splits) > 6 else "")


def _split(splits: Mapping[str, ClientSplit], by: str) -> Line:
    parts = {kind: [len(getattr(s, kind)) for s in splits.values()] for kind in ("train", "validation", "test")}
    shown = ", ".join(f"{sum(sizes)} {kind}" for kind, sizes in parts.items())
    return "split", shown, f"{by}; a client has {min(parts['test'])} to {max(parts['test'])} test rows"


def _unseen(rows: Rows, schema: Schema, splits: Mapping[str, ClientSplit]) -> list[Line]:
    if schema.task != "classification":
        return []
    tested = np.concatenate([split.test for split in splits.values()])
    unseen = int((schema.targets_of(rows)[tested] < 0).sum())
    return [("unseen classes", f"{unseen} test rows have a class that no training row has", "wrong")] if unseen else []
