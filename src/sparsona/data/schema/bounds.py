"""What may leave an owner before round 1: declared ranges and names, or values that enough rows share.

The description of declared columns follows from the declaration, so the owner sends only its number of rows. Each row
is made to fit it: a number outside of its range becomes the nearest number inside, an undeclared name a missing value.

Without a declaration, rare values are removed before anything is computed: a value of fewer than `least` training rows
would reveal single rows, in the agreement and in the update of its input. Simulations and nodes call the same function.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsona.data.dataset import Array, ClientSplit
from sparsona.data.schema.columns import as_option_list
from sparsona.data.schema.moments import ColumnMoments
from sparsona.data.schema.roles import Kind
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import UNKNOWN, class_names
from sparsona.errors import DataError, InputError


@dataclass(frozen=True)
class Bounds:
    """The declared ranges of numbers, and the declared names of categories.

    >>> Bounds.of(["age=0:120", "sex=f/m"])
    Bounds(numbers={'age': (0.0, 120.0)}, names={'sex': ('f', 'm')})
    """

    numbers: Mapping[str, tuple[float, float]]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, declared: Iterable[str]) -> Bounds:
        """Parse bounds such as age=0:120 and sex=f/m; raises `InputError` for other texts."""
        numbers: dict[str, tuple[float, float]] = {}
        names: dict[str, tuple[str, ...]] = {}
        for text in declared:
            column, equals, values = text.rpartition("=")
            low, colon, high = values.partition(":")
            try:
                if colon:
                    numbers[column] = float(low), float(high)
                else:
                    names[column] = tuple(sorted(filter(None, values.split("/"))))
            except ValueError:
                equals = ""
            if (
                not equals
                or not column
                or (colon and not -math.inf < numbers[column][0] < numbers[column][1] < math.inf)
            ):
                raise InputError(f"bounds {text!r} is none: write age=0:120 for numbers, or sex=f/m for names")
        return cls(numbers, names)


def within(rows: Rows) -> Rows:
    """Return the rows, made to fit their declared bounds."""
    if not rows.bounds:
        return rows
    bounds, numbers, target = Bounds.of(rows.bounds), rows.numbers.copy(), rows.target
    for k, name in enumerate(rows.number_names):
        if name in bounds.numbers:
            numbers[:, k] = np.clip(numbers[:, k], *bounds.numbers[name])
    if rows.task == "regression" and len(rows.targets) == 1 and rows.targets[0] in bounds.numbers:
        target = np.clip(target, *bounds.numbers[rows.targets[0]])
    categories = {
        name: np.where(np.isin(held, bounds.names[name]), held, "") if name in bounds.names else held
        for name, held in rows.categories.items()
    }
    return replace(rows, numbers=numbers, categories=categories, target=target)


def check_declared(rows: Rows) -> None:
    """Refuse undeclared columns in a run with a privacy budget, since their description would depend on rows."""
    bounds, target = Bounds.of(rows.bounds), rows.targets[:1]
    lacking = [name for name in rows.number_names if name not in bounds.numbers]
    lacking += [name for name in rows.categories if name not in bounds.names]
    if rows.task == "regression":
        lacking += [name for name in target if name not in bounds.numbers]
    reasons = {
        f"declare columns.bounds of {as_option_list(lacking)}: --bounds age=0:120,sex=f/m": bool(lacking),
        "name the task (--task classification or regression): it is not read off the rows": rows.task
        not in ("classification", "regression"),
        "name all classes (columns.classes): they are not read off the rows": rows.task == "classification"
        and not rows.classes,
        "columns.scaling=own depends on all rows: choose agreed or none": rows.scaling == "own",
        "arrays are scaled by all rows: choose --scaling none": rows.block is not None and rows.scaling != "none",
        "tokens are counted over all rows: choose another data set": rows.inputs == "tokens",
    }
    for reason, found in reasons.items():
        if found:
            raise InputError(f"with a privacy budget, or with bounds: {reason}")


def declared_kind(rows: Rows) -> Kind:
    """Return the kind of the target by its declaration."""
    if rows.task != "classification":
        return "decimal"
    return "whole" if all(_is_whole(name) for name in rows.classes) else "text"


def _is_whole(name: str) -> bool:
    return name.lstrip("+-").isdigit()


def declared_description(rows: Rows, count: int) -> dict[str, Any]:
    """Return kinds, flags, moments and names of a description, made from declared bounds instead of rows.

    Numbers get the mean and deviation of a uniform distribution on their range.
    """
    bounds = Bounds.of(rows.bounds)
    check_declared(rows)
    if rows.task == "classification" and (unknown := set(class_names(rows).tolist()) - set(rows.classes)):
        raise DataError(f"target {rows.targets[0]!r} holds {min(unknown)!r}, which columns.classes does not name")
    numeric = {name for name, names in bounds.names.items() if all(map(_is_whole, names))}
    kinds = {name: "numeric" if name in numeric else "text" for name in rows.categories}
    return {
        "columns": [[name, kinds.get(name, "number")] for name in rows.order],
        "kind": declared_kind(rows),
        "missing": np.ones(len(rows.number_names), np.uint8),
        "inputs": _uniform([bounds.numbers[name] for name in rows.number_names], count),
        "categories": {name: list(bounds.names[name]) for name in rows.categories},
        "classes": sorted(rows.classes),
        "target": _uniform([bounds.numbers[name] for name in rows.targets if name in bounds.numbers], count),
    }


def _uniform(ranges: list[tuple[float, float]], count: int) -> ColumnMoments:
    low, high = np.array(ranges, np.float64).reshape(-1, 2).T
    return ColumnMoments(np.full(len(low), count, np.int64), (low + high) / 2, count * (high - low) ** 2 / 12)


def without_rare(rows: Rows, splits: Iterable[ClientSplit], least: int) -> Rows:
    """Return each client's rows without values that fewer than `least` of its training rows share.

    A rare category becomes missing and a rare token the unknown word. A column with few known numbers becomes missing
    as a whole; few missing numbers are filled in with the client's mean. Declared columns (bounds) stay as they are.
    Raises `DataError` for a class of few rows, unless the experiment names the classes.
    """
    if least <= 1 or rows.bounds:
        return rows
    numbers = rows.numbers.copy()
    categories = {name: values.copy() for name, values in rows.categories.items()}
    block = None if rows.block is None else rows.block.copy()
    for split in splits:
        _check_classes(rows, split, least)
        mine = np.concatenate([split.train, split.validation, split.test])
        for values in categories.values():
            held, counts = np.unique(values[split.train], return_counts=True)
            rare = ~np.isin(values[mine], held[counts >= least])
            values[mine[rare]] = ""
        for k in range(numbers.shape[1]):
            numbers[mine, k] = _filled(numbers[:, k], split, mine, least)
        if block is not None and rows.inputs == "tokens":
            seen = np.concatenate([np.unique(sample) for sample in block[split.train]])
            held, counts = np.unique(seen, return_counts=True)
            block[mine] = np.where(np.isin(block[mine], (0, *held[counts >= least])), block[mine], UNKNOWN)
    return replace(rows, numbers=numbers, categories=categories, block=block)


def _filled(column: Array, split: ClientSplit, mine: Array, least: int) -> Array:
    seen, own = column[split.train], column[mine]
    known = seen[~np.isnan(seen)]
    if len(known) < least:
        return np.full(len(mine), np.nan)
    return np.where(np.isnan(own), known.mean(), own) if len(seen) - len(known) < least else own


def _check_classes(rows: Rows, split: ClientSplit, least: int) -> None:
    seen = rows.take(split.train)
    if rows.classes or not seen.tells_classes:
        return
    names, counts = np.unique(class_names(seen), return_counts=True)
    if counts.min() < least:
        name = str(names[counts.argmin()])
        raise DataError(
            f"client {split.name!r}, target {rows.targets[0]!r}: {int(counts.min())} training rows have the class "
            f"{name!r}, and its name may leave with {least} or more (least_rows); name all classes in the experiment "
            "(columns.classes), leave these rows out, or pass --task regression where the target is a number"
        )
