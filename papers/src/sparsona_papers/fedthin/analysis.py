"""The statistics of the study, as functions of arrays: scores by task, seed and client, and curves over bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
"""Scores of one task: seeds x clients."""

MODELS = (1.0, 32.0)
"""Range of the area in float32 models per client, up and down; the area is over the logarithm of bytes."""


@dataclass(frozen=True)
class Curve:
    """A run of one seed. Per evaluation: the mean traffic of a client, in float32 models, and each client's score
    (evaluations x clients). `start` is the score before the first evaluation.
    """

    spent: Sequence[float]
    scores: Scores
    start: float


def area(curve: Curve, low: float = MODELS[0], high: float = MODELS[1]) -> Scores:
    """Return each client's mean score over log bytes between `low` and `high`. At any number of bytes the last
    evaluation within it counts, and the run's last one beyond its end.

    >>> area(Curve([2.0, 8.0], np.array([[0.5], [1.0]]), 0.0), 1.0, 16.0)
    array([0.5])
    """
    total = np.zeros(curve.scores.shape[1])
    bounds = [low, *(min(max(spent, low), high) for spent in curve.spent), high]
    for number, (left, right) in enumerate(pairwise(bounds)):
        held = curve.scores[number - 1] if number else curve.start
        total += held * math.log(right / left)
    return np.asarray(total / math.log(high / low))


def charged(curve: Curve, share: float) -> Curve:
    """The curve if each client paid for the initial model, as float32, when it is first asked; `share` of the clients
    are asked in a round, so after n rounds 1 - (1 - share)^n of them have been, in expectation. For runs that are
    measured in every round.

    >>> charged(Curve([0.5, 1.0], np.zeros((2, 1)), 0.0), 0.2).spent
    [0.7, 1.36]
    """
    asked = [1 - (1 - share) ** count for count in range(1, len(curve.spent) + 1)]
    return replace(curve, spent=[round(own + more, 6) for own, more in zip(curve.spent, asked, strict=True)])


def bytes_to(curve: Curve, target: float) -> float:
    """Return a client's traffic, in models, when the mean score first reaches `target`; infinite if never.

    >>> bytes_to(Curve([2.0, 8.0], np.array([[0.5], [1.0]]), 0.0), 0.9)
    8.0
    """
    means = curve.scores.mean(axis=1)
    return next((float(spent) for spent, mean in zip(curve.spent, means, strict=True) if mean >= target), math.inf)


@dataclass(frozen=True)
class Effect:
    """A mean difference, its 95 % interval, and the two-sided p-value of no difference, by the bootstrap."""

    value: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        return f"{100 * self.value:+.2f} ({100 * self.low:+.2f} to {100 * self.high:+.2f})"


def bootstrap(differences: Mapping[str, Scores], repeats: int = 10_000, seed: int = 0) -> Effect:
    """The mean over tasks of paired differences (by task: seeds x clients), resampling tasks, seeds, and clients.

    A replicate draws as many tasks as there are, with replacement; within each, seeds and clients likewise. Clients are
    drawn for all seeds of a task together: they are the same clients. The interval is by percentiles; p counts the
    replicates on the other side of zero, twice, and is at least 2 / (repeats + 1).

    >>> round(bootstrap({"a": np.full((5, 9), 0.02), "b": np.full((5, 4), 0.04)}, repeats=99).value, 9)
    0.03
    """
    rng, tasks = np.random.default_rng(seed), [differences[name] for name in sorted(differences)]
    drawn = rng.integers(len(tasks), size=(len(tasks), repeats))
    found = np.zeros(repeats)
    for number, own in enumerate(tasks):
        seeds, clients = own.shape
        for place in drawn:
            here = np.flatnonzero(place == number)
            by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), len(here))
            by_client = rng.multinomial(clients, np.full(clients, 1 / clients), len(here))
            found[here] += ((by_seed @ own) * by_client).sum(axis=1) / own.size
    found /= len(tasks)
    beyond = min((found <= 0).sum(), (found >= 0).sum())
    low, high = np.quantile(found, [0.025, 0.975])
    value = float(np.mean([own.mean() for own in tasks]))
    return Effect(value, float(low), float(high), min(1.0, 2 * (float(beyond) + 1) / (repeats + 1)))


def not_inferior(effect_low: float, margin: float = 0.005) -> bool:
    """Return whether the lower end of a 95 % interval is above minus the margin.

    >>> not_inferior(-0.004), not_inferior(-0.006)
    (True, False)
    """
    return effect_low > -margin
