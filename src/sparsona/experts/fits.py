"""Train experts on one client's own rows: boosted trees by LightGBM (Ke and others, NeurIPS 2017), logistic and ridge
regression by scikit-learn, and the constant answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.experts.models import (
    FEWEST,
    Constant,
    ExpertModel,
    LinearModel,
    OwnRows,
    Refitted,
    Trees,
    fit_constant,
    own_rows,
)
from sparsona.training.local import Local

Chosen = TypeVar("Chosen")

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


def _refitted(
    rows: OwnRows,
    find: Callable[[OwnRows], Chosen],
    classes: Callable[[OwnRows, Chosen], ExpertModel],
    several: Callable[[OwnRows, Sequence[OwnRows], Sequence[Chosen]], ExpertModel],
) -> Refitted:
    """Return a model of the training rows, and one of all rows, with what `find` has chosen on training rows."""
    if rows.kind == "classification":
        found = find(rows)
        return Refitted(classes(rows.joined(), found), classes(rows, found))
    outputs = [rows.known(place) for place in range(rows.outputs)]
    each = [find(one) for one in outputs]
    return Refitted(several(rows.joined(), [one.joined() for one in outputs], each), several(rows, outputs, each))


def fit_trees(rows: OwnRows) -> Refitted:
    """Return trees, stopped early by rows that they do not see, and the same number refitted on all rows."""
    lightgbm()  # an absent package is named before anything is trained
    return _refitted(rows, _count, _classes, _several)


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


INVERSE_PENALTIES = 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0
RIDGE_PENALTIES = 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4
STEPS = 200


def fit_linear(rows: OwnRows) -> Refitted:
    """Return a linear model of the training rows, and one of all rows with the same penalty.

    The penalty is found by cross-validation on training rows.
    """
    from threadpoolctl import threadpool_limits  # like scikit-learn below: slow to import

    with threadpool_limits(1), warnings.catch_warnings():  # one thread: sums in one order on every engine
        warnings.simplefilter("ignore")  # a path of penalties that has not converged is judged by its loss
        find = _ridge_penalty if rows.kind == "regression" else _inverse_penalty
        return _refitted(rows, find, _linear_classes, _linear_outputs)


def _linear_classes(rows: OwnRows, penalty: float) -> LinearModel | Constant:
    base = fit_constant(rows)
    places = np.unique(rows.targets)
    if not penalty or len(places) < 2:
        return base
    weight = np.zeros((rows.outputs, rows.inputs.shape[1]), np.float32)
    bias = base.outputs.copy()
    weight[places], bias[places] = _logistic(rows, penalty)
    return LinearModel(weight, bias)


def _linear_outputs(rows: OwnRows, outputs: Sequence[OwnRows], penalties: Sequence[float]) -> LinearModel | Constant:
    base = fit_constant(rows)
    weight = np.zeros((rows.outputs, rows.inputs.shape[1]), np.float32)
    bias = base.outputs.copy()
    for place, (one, penalty) in enumerate(zip(outputs, penalties, strict=True)):
        if penalty and rows.kind == "regression":
            weight[place], bias[place] = _ridge(one, penalty)
        elif penalty and len(np.unique(one.targets)) > 1:
            odds, constants = _logistic(one, penalty)
            weight[place], bias[place] = odds[1] - odds[0], constants[1] - constants[0]
    return LinearModel(weight, bias) if weight.any() else base


def _logistic(rows: OwnRows, penalty: float) -> tuple[Array, Array]:
    """Return weights and biases of the classes that the rows have, in their order."""
    from sklearn.linear_model import LogisticRegression

    scale = _Scale(rows.inputs)
    weights = rows.weights(rows.targets)
    found = LogisticRegression(C=penalty, max_iter=STEPS).fit(scale.applied(rows.inputs), rows.targets, weights)
    weight, bias = np.asarray(found.coef_), np.asarray(found.intercept_)
    if len(bias) == 1:
        weight, bias = np.concatenate([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    return scale.folded(weight, bias)


def _ridge(rows: OwnRows, penalty: float) -> tuple[Array, Array]:
    from sklearn.linear_model import Ridge

    scale = _Scale(rows.inputs)
    found = Ridge(alpha=penalty).fit(scale.applied(rows.inputs), rows.targets)
    weight, bias = scale.folded(np.atleast_2d(found.coef_), np.atleast_1d(found.intercept_))
    return weight[0], bias[0]


def _inverse_penalty(rows: OwnRows) -> float:
    """Return the inverse penalty with the least log loss over all folds; 0 where there is nothing to learn."""
    if len(rows.targets) < FEWEST or len(np.unique(rows.targets)) < 2:
        return 0.0
    from sklearn.linear_model import LogisticRegression

    losses = np.zeros(len(INVERSE_PENALTIES))
    for fit, check in rows.folds():
        classes = np.unique(rows.targets[fit])
        known = check[np.isin(rows.targets[check], classes)]
        if len(classes) < 2 or not len(known):
            continue
        scale = _Scale(rows.inputs[fit])
        inputs, held = scale.applied(rows.inputs[fit]), scale.applied(rows.inputs[known])
        found = LogisticRegression(max_iter=STEPS, warm_start=True)
        fitted, checked = (rows.weights(rows.targets[part]) for part in (fit, known))
        for place, penalty in enumerate(INVERSE_PENALTIES):
            found.set_params(C=penalty).fit(inputs, rows.targets[fit], fitted)
            logs = found.predict_log_proba(held)
            said = logs[np.arange(len(known)), np.searchsorted(classes, rows.targets[known])]
            losses[place] -= np.average(said, weights=checked) * len(known) if checked is not None else said.sum()
    return INVERSE_PENALTIES[int(np.argmin(losses))]


def _ridge_penalty(rows: OwnRows) -> float:
    """Return the penalty with the least leave-one-out error; 0 where there is nothing to learn."""
    if len(rows.targets) < FEWEST or not np.ptp(rows.targets):
        return 0.0
    from sklearn.linear_model import RidgeCV

    found: Any = RidgeCV(alphas=RIDGE_PENALTIES).fit(_Scale(rows.inputs).applied(rows.inputs), rows.targets)
    return float(found.alpha_)


class _Scale:
    """Mean and deviation of each column: a penalty treats all columns alike. A constant column counts as 0."""

    def __init__(self, inputs: Array) -> None:
        wide = inputs.astype(np.float64)
        self.mean, deviation = wide.mean(0), wide.std(0)
        self.inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 1e-7)

    def applied(self, inputs: Array) -> Array:
        out: Array = (inputs.astype(np.float64) - self.mean) * self.inverse
        return out

    def folded(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """Return weights and biases for columns as they come."""
        own = weight * self.inverse
        return own.astype(np.float32), (bias - own @ self.mean).astype(np.float32)


ExpertName: TypeAlias = Literal["trees", "linear", "naive"]


def train_expert(name: ExpertName, local: Local) -> Refitted:
    """Train an expert on the client's own rows. The same client gets the same expert in every round.

    About as many operations are counted as passes over all numbers of the rows take.
    """
    rows = own_rows(local)
    if name == "naive":
        found, operations = Refitted(fit_constant(rows.joined()), fit_constant(rows)), rows.targets.size
    elif name == "linear":
        found, operations = fit_linear(rows), 2 * 100 * rows.inputs.size * rows.outputs
    else:
        found = fit_trees(rows)
        trees: int = max(1, sum(text.count("\nTree=") for text in getattr(found.used, "forests", ())))
        operations = 2 * rows.inputs.size * trees * LEAVES.bit_length()
    local.count_other(operations)
    return found


def constant_answer(local: Local) -> Constant:
    """Return what a client answers before it has trained an expert: the constant of its training rows."""
    return fit_constant(own_rows(local))
