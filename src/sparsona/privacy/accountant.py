"""The accountant: the epsilon of a number of queries, and the noise with which they keep to an epsilon.

The relation is *replace one row*; the number of rows is public. A query on two data sets that differ in one row gives,
in units of the clip and given all other rows in the sample, (1-q) N(0, s^2) + q N(u, s^2) and (1-q) N(0, s^2) + q
N(v, s^2) with vectors u and v of norm at most 1. Of all such pairs, u = 1 and v = -1 on a line dominates for every
order of the hockey-stick divergence (docs/privacy.md has the proof), so its privacy loss distribution, composed with
itself, bounds any adaptive sequence of queries (Zhu, Dong, Wang 2022, theorem 10). `dp-accounting` computes it
with all rounding upwards; it calls the relation REPLACE_ONE. Its RDP accountant has no bound for this relation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sparsona.errors import InputError

GRID = 5e-3
"""The grid on which privacy losses are rounded upwards: a coarser one is faster, and its epsilon larger."""
CLOSE = 1.002
"""Relative tolerance of the noise above the least sufficient one."""
MOST_NOISE = 1e5


@lru_cache(maxsize=4096)
def epsilon_of(rate: float, noise: float, queries: int, delta: float) -> float:
    """The epsilon of `queries` queries with sampling rate `rate` and noise multiplier `noise`, at `delta`."""
    if not queries:
        return 0.0
    once = _library().from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=GRID, neighboring_relation=_replace_one()
    )
    return float((once.self_compose(queries) if queries > 1 else once).get_epsilon_for_delta(delta))


@lru_cache(maxsize=4096)
def noise_for(epsilon: float, delta: float, rate: float, queries: int) -> float:
    """The least noise multiplier, up to 0.2 percent, with which `queries` queries keep to `epsilon` at `delta`."""
    low, high = 0.0, 1.0
    while epsilon_of(rate, high, queries, delta) > epsilon:
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise InputError(f"privacy.epsilon={epsilon:g} needs too much noise: raise it, or take fewer rounds")
    low = low or high / 2**6
    while high / low > CLOSE:
        middle = (low * high) ** 0.5
        if epsilon_of(rate, middle, queries, delta) > epsilon:
            low = middle
        else:
            high = middle
    return high


def _library() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise InputError("a privacy budget needs dp-accounting: pip install 'sparsona[privacy]'") from None
    return privacy_loss_distribution


def _replace_one() -> Any:
    from dp_accounting import NeighboringRelation

    return NeighboringRelation.REPLACE_ONE
