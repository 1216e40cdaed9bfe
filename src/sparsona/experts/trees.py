"""Boosted trees on one client's rows, by LightGBM (Ke and others, NeurIPS 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.experts.arrays import Constant, fit_constant
from sparsona.experts.forest import Trees
from sparsona.experts.refitted import Refitted
from sparsona.experts.rows import FEWEST, OwnRows

MOST_TREES, PATIENCE, LEAVES = 300, 20, 31
ENOUGH = 30
"""Validation rows from which on they say when to stop. Fewer are too noisy: training rows are cross-validated."""

SETTINGS: dict[str, Any] = {
    "learning_rate": 0.1,
    "num_leaves": LEAVES,
    "lambda_l2": 1.0,
    "feature_fraction": 0.8,
    # a missing value is a column of its own by now
    "use_missing": False,
    # the same bits on every engine, whatever the number of its threads
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


def fit_trees(rows: OwnRows) -> Refitted:
    """Return trees, stopped early by rows that they do not see, and the same number refitted on all rows."""
    lightgbm()  # an absent package is named before anything is trained
    if rows.kind == "classification":
        count = _count(rows)
        return Refitted(_classes(rows.joined(), count), _classes(rows, count))
    outputs = [rows.known(place) for place in range(rows.outputs)]
    counts = [_count(one) for one in outputs]
    joined = [one.joined() for one in outputs]
    return Refitted(_several(rows.joined(), joined, counts), _several(rows, outputs, counts))


def is_installed() -> bool:
    """Return whether LightGBM is here, without importing it."""
    return find_spec("lightgbm") is not None


def lightgbm() -> Any:
    """Return the package, which is an extra."""
    try:
        import lightgbm as found
    except ImportError:
        raise InputError('trees need LightGBM, which is not installed: pip install "sparsona[trees]"') from None
    return found


def _classes(rows: OwnRows, count: int) -> Trees | Constant:
    places = np.unique(rows.targets)
    base = fit_constant(rows)
    if len(places) < 2 or not count:
        return base
    text = _text(rows, count)
    return Trees("classification", (text,), tuple(map(int, places)), base.outputs, len(rows.targets))


def _several(rows: OwnRows, outputs: Sequence[OwnRows], counts: Sequence[int]) -> Trees | Constant:
    base = fit_constant(rows)
    texts = tuple(
        _text(one, count) if count and len(np.unique(one.targets)) > 1 else ""
        for one, count in zip(outputs, counts, strict=True)
    )
    return Trees(rows.kind, texts, (), base.outputs, len(rows.targets)) if any(texts) else base


def _count(rows: OwnRows) -> int:
    """Return the best number of boosting rounds; 0 if there is nothing to learn."""
    if len(rows.targets) < FEWEST or len(np.unique(rows.targets)) < 2:
        return 0
    lgb, stop = lightgbm(), [lightgbm().early_stopping(PATIENCE, verbose=False)]
    settings, train = _settings(rows), _dataset(rows)
    known = np.isin(rows.held_targets, rows.targets) | (rows.kind == "regression")
    if known.sum() >= ENOUGH:
        held = rows.held_targets[known]
        check = train.create_valid(rows.held_inputs[known], _labels(rows, held), rows.weights(held))
        found = lgb.train(settings, train, MOST_TREES, valid_sets=[check], callbacks=stop)
        return max(1, int(found.best_iteration))
    found = lgb.cv(settings, train, MOST_TREES, folds=list(rows.folds()), callbacks=stop)
    (losses,) = (values for name, values in found.items() if name.endswith("-mean"))
    return int(np.argmin(losses)) + 1


def _text(rows: OwnRows, count: int) -> str:
    """Return the trees as text, without the settings and importances behind them."""
    found = lightgbm().train(_settings(rows), _dataset(rows), count)
    text: str = found.model_to_string()
    return text.partition("end of trees")[0] + "end of trees\n"


def _dataset(rows: OwnRows) -> Any:
    return lightgbm().Dataset(rows.inputs, _labels(rows, rows.targets), weight=rows.weights(rows.targets))


def _labels(rows: OwnRows, targets: Array) -> Array:
    """Return targets as LightGBM counts them: a class by its place among those of the training rows, else -1."""
    if rows.kind != "classification":
        return targets
    known = np.unique(rows.targets)
    place = np.full(rows.outputs, -1)
    place[known] = np.arange(len(known))
    return place[targets]


def _settings(rows: OwnRows) -> dict[str, Any]:
    classes = len(np.unique(rows.targets)) if rows.kind == "classification" else 0
    few = max(3, min(20, len(rows.targets) // 15))
    objective: dict[str, Any] = {"objective": "regression"}
    if rows.kind == "multilabel" or classes == 2:
        objective = {"objective": "binary"}
    elif classes > 2:
        objective = {"objective": "multiclass", "num_class": classes}
    return {**SETTINGS, **objective, "min_data_in_leaf": few, "seed": rows.seed}
