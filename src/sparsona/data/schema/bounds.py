"""Columns with declared ranges or names: before round 1 the owner then sends only its number of rows.

The description of declared columns follows from the declaration. Each row is made to fit it: a number outside of its
range becomes the nearest number inside, an undeclared name becomes a missing value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsona.data.schema.columns import as_option_list
from sparsona.data.schema.moments import ColumnMoments
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import class_names
from sparsona.data.schema.target import Kind
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
