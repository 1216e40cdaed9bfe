"""The personal choice of the aggregate: how many positions, which of them must be there, and that the draw is fair."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.chance import Chance
from sparsona.message import IndexSet, Sparse, Vector
from sparsona.methods.fedpse.personal import CommonChoice
from sparsona.ops.pairwise import cosine

SETS = st.sets(st.integers(0, 40), max_size=30).map(lambda s: np.array(sorted(s), np.int64))


def _generator(seed: int, span: int) -> np.random.Generator:
    return Chance(seed).rng("test", layer=span)


def personal_support(
    common: IndexSet, aggregate: Vector, own: IndexSet, sent: Vector, seed: int = 0
) -> tuple[IndexSet, float]:
    """One span of 41 positions, as 10..50 of a longer vector."""
    chosen, distance = CommonChoice.of(Sparse(60, common + 10, aggregate), [slice(10, 51)]).personal(
        Sparse(60, own + 10, sent), partial(_generator, seed)
    )
    return chosen - 10, distance


def ones(indices: IndexSet, value: float = 1.0) -> Vector:
    return np.full(len(indices), value, np.float32)


@settings(deadline=None)  # the first call compiles
@given(SETS, SETS, st.integers(0, 10**6))
def test_the_choice_is_as_large_as_the_common_one_and_made_of_both(common: IndexSet, own: IndexSet, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(2, 41)).astype(np.float32)
    chosen, d = personal_support(common, values[0, common], own, values[1, own], seed)
    assert 0 <= d <= 1
    assert len(chosen) == len(common)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert set(common) & set(own) <= set(chosen) <= set(common) | set(own)
    rest = len(common) - len(set(common) & set(own))
    from_own = len(set(chosen) - set(common))
    assert from_own == min(int(d * rest + 0.5), len(set(own) - set(common)))
    dense = np.zeros((2, 41), np.float32)
    dense[0, common], dense[1, own] = values[0, common], values[1, own]
    assert np.isclose(d, 0.5 - 0.5 * cosine(dense[0], dense[1]))


def test_the_same_direction_takes_the_common_positions() -> None:
    common, own = np.array([1, 2, 3]), np.array([1, 2, 3])
    chosen, d = personal_support(common, ones(common, 0.3), own, ones(own, 7.0))
    assert d < 1e-12
    assert chosen.tolist() == [1, 2, 3]


def test_the_opposite_direction_keeps_to_the_clients_own_positions() -> None:
    common, own = np.array([0, 1, 2, 3]), np.array([0, 7, 8, 9])
    values = np.array([1, 1e-6, 1e-6, 1e-6], np.float32)
    chosen, d = personal_support(common, values, own, -values)
    assert d > 0.999
    assert chosen.tolist() == [0, 7, 8, 9], "what is not common to both comes from the client"


def test_disjoint_positions_or_no_direction_give_one_half() -> None:
    common, own = np.array([0, 1, 2]), np.array([5, 6, 7])
    chosen, d = personal_support(common, ones(common), own, ones(own))
    assert d == 0.5
    assert len(set(chosen) & set(own)) == 2, "1.5 is rounded half up, the rest is the complement: 2 + 1, never 2 + 2"
    assert personal_support(common, ones(common, 0.0), own, ones(own))[1] == 0.5
    assert personal_support(common[:1], ones(common[:1]), own[:1], ones(own[:1]))[0].tolist() == [5]


def test_empty_sets() -> None:
    none, some = np.zeros(0, np.int64), np.array([3, 4])
    assert personal_support(none, ones(none), some, ones(some))[0].tolist() == []
    chosen, d = personal_support(some, ones(some), none, ones(none))
    assert chosen.tolist() == [3, 4]
    assert d == 0.5


def test_every_subset_is_drawn_alike() -> None:
    common, own = np.arange(4), np.arange(10, 14)
    seen = np.zeros(14)
    for seed in range(3000):
        seen[personal_support(common, ones(common), own, ones(own), seed)[0]] += 1
    assert np.allclose(seen[[0, 1, 2, 3, 10, 11, 12, 13]] / 3000, 0.5, atol=0.04)


def test_spans_have_their_own_chance_and_their_own_distance() -> None:
    common = Sparse(8, np.array([0, 1, 4, 5]), np.array([1, 1, 1, 1], np.float32))
    update = Sparse(8, np.array([0, 1, 6, 7]), np.array([2, 2, 1, 1], np.float32))
    chosen, d = CommonChoice.of(common, [slice(0, 4), slice(4, 8)]).personal(update, partial(_generator, 0))
    assert chosen[:2].tolist() == [0, 1]
    assert len(set(chosen[2:]) & {4, 5}) == 1
    assert np.isclose(d, 0.25), "0 in the first span, 1/2 in the second"
