"""The accountant against exact integrals, the analytic Gaussian mechanism and published values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import norm

from sparsona.errors import InputError
from sparsona.privacy.accountant import epsilon_of, noise_for


def divergence(rate: float, noise: float, u: float, v: float, epsilon: float) -> float:
    """The hockey-stick divergence of one query whose differing row adds u or v to the sum, by a fine grid."""
    at = np.linspace(-1 - 12 * noise, 1 + 12 * noise, 40_001)

    def density(shift: float) -> Any:
        return (1 - rate) * norm.pdf(at, 0, noise) + rate * norm.pdf(at, shift, noise)

    lost = np.maximum(density(u) - math.exp(epsilon) * density(v), 0)
    return float(lost.sum() * (at[1] - at[0]))


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 0.8), (0.5, 2.0), (1.0, 3.0)])
def test_one_query_has_the_epsilon_of_its_exact_integral(rate: float, noise: float) -> None:
    found = epsilon_of(rate, noise, 1, 1e-5)
    assert divergence(rate, noise, 1, -1, found) <= 1.001e-5
    assert divergence(rate, noise, 1, -1, 0.97 * found) > 1e-5


def test_opposite_rows_dominate_all_others() -> None:
    """The claim that the accountant rests on, at random places; on a line, and in both directions."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        rate, noise, epsilon = rng.uniform(0.02, 1), rng.uniform(0.4, 3), rng.uniform(-2, 3)
        u, v = rng.uniform(-1, 1, 2)
        assert divergence(rate, noise, u, v, epsilon) <= divergence(rate, noise, 1, -1, epsilon) + 1e-9


STEP = 0.08
GRID = np.arange(-16, 16, STEP)


def planar(rate: float, noise: float, length: float, angle: float) -> Any:
    """The density of one query in the plane whose differing row adds a vector of this length and angle."""
    one, other = (norm.pdf(GRID, length * part, noise) for part in (math.cos(angle), math.sin(angle)))
    alone = norm.pdf(GRID, 0, noise)
    return (1 - rate) * np.outer(alone, alone) + rate * np.outer(one, other)


def test_opposite_rows_dominate_in_the_plane() -> None:
    """The same for rows in any two directions; with q = 0.03 the others' common part is nearly all."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        rate, noise, epsilon = rng.choice([0.03, 0.3, 0.9]), rng.uniform(0.5, 1.2), rng.uniform(-2, 3)
        lengths, angles = rng.uniform(0.5, 1, 2), rng.uniform(0, 2 * np.pi, 2)

        ours, theirs = (planar(rate, noise, *one) for one in zip(lengths, angles, strict=True))
        lost = np.maximum(ours - math.exp(epsilon) * theirs, 0).sum() * STEP**2
        assert lost <= divergence(rate, noise, 1, -1, epsilon) + 1e-6


@pytest.mark.parametrize("queries", [1, 7, 100])
def test_without_sampling_queries_are_one_gaussian_of_less_noise(queries: int) -> None:
    """Balle and Wang 2018, with sensitivity 2: a row is replaced."""
    noise, delta = 20.0, 1e-5
    found = epsilon_of(1.0, noise, queries, delta)
    ratio = 2 * math.sqrt(queries) / noise

    def delta_at(epsilon: float) -> float:
        tail = norm.cdf(ratio / 2 - epsilon / ratio)
        return float(tail - math.exp(epsilon) * norm.cdf(-ratio / 2 - epsilon / ratio))

    assert delta_at(found) <= delta
    assert delta_at(0.98 * found) > delta


@pytest.mark.parametrize(
    ("rate", "noise", "queries", "published"),
    [
        (0.01, 4.0, 10_000, 1.26),  # Abadi and others 2016, figure 2: the moments accountant after 100 epochs
        (250 / 60_000, 1.3, 3_600, 1.18),  # the tutorial of TensorFlow Privacy on MNIST, by RDP
    ],
)
def test_published_bounds_for_adding_a_row_lie_below_those_for_replacing_one(
    rate: float, noise: float, queries: int, published: float
) -> None:
    """Published values are for adding or removing a row: the library is as tight, and replacing costs up to twice."""
    added = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=1e-3,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    epsilon = added.self_compose(queries).get_epsilon_for_delta(1e-5)
    assert 0.7 * published < epsilon < published
    assert epsilon < epsilon_of(rate, noise, queries, 1e-5) < 2.6 * epsilon


def test_the_noise_that_is_found_keeps_to_epsilon_and_is_hardly_more_than_needed() -> None:
    noise = noise_for(2.0, 1e-5, 0.2, 50)
    assert epsilon_of(0.2, noise, 50, 1e-5) <= 2.0
    assert epsilon_of(0.2, 0.99 * noise, 50, 1e-5) > 2.0


def test_no_query_costs_nothing_and_an_impossible_epsilon_is_refused() -> None:
    assert epsilon_of(0.5, 1.0, 0, 1e-5) == 0
    with pytest.raises(InputError, match="too much noise"):
        noise_for(1e-7, 1e-5, 1.0, 10**6)
