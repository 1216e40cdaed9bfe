"""Every expert by its name, trained on one client's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from sparsona.experts.arrays import Constant, fit_constant
from sparsona.experts.linear import fit_linear
from sparsona.experts.refitted import Refitted
from sparsona.experts.rows import OwnRows, own_rows
from sparsona.experts.trees import LEAVES, fit_trees
from sparsona.training.local import Local

ExpertName: TypeAlias = Literal["trees", "linear", "naive"]


def _fit_naive(rows: OwnRows) -> Refitted:
    return Refitted(fit_constant(rows.joined()), fit_constant(rows))


FITS: Mapping[ExpertName, Callable[[OwnRows], Refitted]] = {
    "trees": fit_trees,
    "linear": fit_linear,
    "naive": _fit_naive,
}


def train_expert(name: ExpertName, local: Local) -> Refitted:
    """Train an expert on the client's own rows. The same client gets the same expert in every round."""
    rows = own_rows(local)
    found = FITS[name](rows)
    local.count_other(_operations(name, found, rows))
    return found


def constant_answer(local: Local) -> Constant:
    """Return what a client answers before it has trained an expert: the constant of its training rows."""
    return fit_constant(own_rows(local))


def _operations(name: ExpertName, found: Refitted, rows: OwnRows) -> int:
    """Return about how many operations a training took: passes over all numbers of the rows."""
    numbers = rows.inputs.size
    if name == "naive":
        return rows.targets.size
    if name == "linear":
        return 2 * 100 * numbers * rows.outputs
    texts = getattr(found.used, "forests", ())
    trees: int = max(1, sum(text.count("\nTree=") for text in texts))
    return 2 * numbers * trees * LEAVES.bit_length()
