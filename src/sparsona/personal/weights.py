"""The weights of a pool: fitted to the validation loss of all clients, or one client's own, shrunken to the common.

For every validation row and every expert there is one number: the probability of the true class or label, or the
predicted number. The loss of a mixture with weights w is -log(a w) of a row `a` of probabilities, and half the squared
error of numbers. Clients send its gradient and its Hessian in w, summed over their rows; the server adds these up and
minimises the quadratic function that they describe. For numbers that is exact; else it is one step of Newton's method
per round.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparsona.message import Vector

Table = npt.NDArray[np.float64]

SHRINK = 16.0
"""Number of rows for which the common weights count when a client fits its own."""
LEAST = 1e-6
"""Lower bound of a row's probability, so that no single row decides."""
STEPS = 400


def equal_weights(count: int) -> Vector:
    """Return the same weight for each expert."""
    return np.full(count, 1 / count, np.float32)


def statistics_size(experts: int) -> int:
    """Return how many numbers :func:`statistics` gives."""
    return 1 + experts + experts * (experts + 1) // 2


def statistics(found: Table, targets: Table | None, weights: Vector) -> Vector:
    """Return the number of rows, and the gradient and the Hessian of their loss at `weights`.

    `found` has one row per validation row and one column per expert. `targets` are numbers, None for probabilities.
    """
    gradient, hessian = _derivatives(found, targets, weights.astype(np.float64))
    upper = hessian[np.triu_indices(len(weights))]
    return np.concatenate([[len(found)], gradient, upper]).astype(np.float32)


def next_weights(told: Vector, weights: Vector) -> Vector:
    """Return the weights that minimise the quadratic function which the sum of all clients' statistics describes."""
    experts = len(weights)
    rows, start = float(told[0]), weights.astype(np.float64)
    if rows <= 0:
        return weights
    gradient = told[1 : 1 + experts].astype(np.float64) / rows
    hessian = np.zeros((experts, experts))
    hessian[np.triu_indices(experts)] = told[1 + experts :] / rows
    hessian = hessian + np.triu(hessian, 1).T
    rate = 1 / max(float(np.trace(hessian)), 1e-12)
    found = start
    for _ in range(STEPS):
        found = _on_simplex(found - rate * (gradient + hessian @ (found - start)))
    return found.astype(np.float32)


def own_weights(found: Table, targets: Table | None, common: Vector) -> Vector:
    """Return one client's weights by Q-aggregation (Lecue and Rigollet, 2014), shrunken to the common ones.

    The loss is half that of the mixture and half the mean of the experts' own, plus `SHRINK` / rows times the
    Kullback-Leibler divergence from the common weights.
    """
    rows, prior = len(found), np.maximum(common.astype(np.float64), 1e-4)
    if not rows:
        return common
    prior /= prior.sum()
    weights, pull, rate = prior, SHRINK / rows, 1 / (4 + SHRINK / rows)
    losses = _losses(found, targets)
    for _ in range(STEPS):
        gradient = 0.5 * _derivatives(found, targets, weights)[0] / rows + 0.5 * losses
        slope = np.clip(gradient, -1e3, 1e3) + pull * np.log(weights / prior)
        logs = np.log(weights) - rate * (slope - slope.min())
        weights = np.maximum(np.exp(logs - logs.max()), 1e-12)
        weights = weights / weights.sum()
    return weights.astype(np.float32)


def _losses(found: Table, targets: Table | None) -> Table:
    """Return the mean loss of each expert by itself."""
    each = -np.log(np.maximum(found, LEAST)) if targets is None else (found - targets[:, None]) ** 2 / 2
    out: Table = each.mean(0)
    return out


def _derivatives(found: Table, targets: Table | None, weights: Table) -> tuple[Table, Table]:
    """Return gradient and Hessian of the loss of a mixture, summed over the rows."""
    means = (found * weights).sum(1)
    if targets is None:
        shares = found / np.maximum(means, LEAST)[:, None]
        return -shares.sum(0), (shares[:, :, None] * shares[:, None, :]).sum(0)
    return ((means - targets)[:, None] * found).sum(0), (found[:, :, None] * found[:, None, :]).sum(0)


def _on_simplex(point: Table) -> Table:
    """Return the nearest point whose numbers are not negative and add up to 1 (Duchi and others, ICML 2008)."""
    ordered = np.sort(point)[::-1]
    above = (np.cumsum(ordered) - 1) / np.arange(1, len(point) + 1)
    least = above[np.flatnonzero(ordered > above)[-1]]
    out: Table = np.maximum(point - least, 0.0)
    return out
