"""Rare values: they are removed before anything is computed from the rows.

A value of fewer than `least` training rows would reveal single rows: in the agreement before round 1, and in the update
of its input. Simulations and nodes call the same function.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from sparsona.data.dataset import Array, ClientSplit
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import UNKNOWN, class_names
from sparsona.errors import DataError


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
