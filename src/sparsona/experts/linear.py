"""Logistic and ridge regression on one client's rows, by scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.experts.arrays import Constant, LinearModel, fit_constant
from sparsona.experts.refitted import Refitted
from sparsona.experts.rows import FEWEST, OwnRows

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
        if rows.kind == "classification":
            penalty = _inverse_penalty(rows)
            return Refitted(_classes(rows.joined(), penalty), _classes(rows, penalty))
        outputs = [rows.known(place) for place in range(rows.outputs)]
        find = _inverse_penalty if rows.kind == "multilabel" else _ridge_penalty
        penalties = [find(one) for one in outputs]
        joined = [one.joined() for one in outputs]
        return Refitted(_several(rows.joined(), joined, penalties), _several(rows, outputs, penalties))


def _classes(rows: OwnRows, penalty: float) -> LinearModel | Constant:
    base = fit_constant(rows)
    places = np.unique(rows.targets)
    if not penalty or len(places) < 2:
        return base
    weight = np.zeros((rows.outputs, rows.inputs.shape[1]), np.float32)
    bias = base.outputs.copy()
    weight[places], bias[places] = _logistic(rows, penalty)
    return LinearModel(weight, bias)


def _several(rows: OwnRows, outputs: list[OwnRows], penalties: list[float]) -> LinearModel | Constant:
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
