"""McNemar, Benjamini-Hochberg and Holm against numbers worked out by hand, and what they promise by chance."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona_papers.fedthin.significance import benjamini_hochberg, holm, losers, mcnemar


def test_mcnemar_is_the_tail_of_a_fair_coin() -> None:
    assert mcnemar(2, 8) == pytest.approx((45 + 10 + 1) / 1024)
    assert mcnemar(8, 2) == pytest.approx(1 - (10 + 1) / 1024)


def test_benjamini_hochberg_steps_up() -> None:
    # of 15 p-values of the authors' example the first four are rejected at 0.05
    p = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.324,
        0.4262,
        0.5719,
        0.6528,
        0.759,
        1,
    ]
    assert benjamini_hochberg(p) == [True] * 4 + [False] * 11
    assert benjamini_hochberg(p[::-1]) == [False] * 11 + [True] * 4
    assert benjamini_hochberg([0.5, 0.9]) == [False, False]


def test_holm_multiplies_by_how_many_are_left_and_never_falls() -> None:
    assert holm([0.02, 0.001, 0.9, 0.03]) == pytest.approx([0.06, 0.004, 0.9, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_equal_models_have_hardly_any_losers() -> None:
    rng = np.random.default_rng(0)
    share = []
    for _ in range(50):
        both = rng.random((2, 40, 80)) < 0.8
        share.append(losers(list(both[0]), list(both[1])))
    assert np.mean(share) < 0.01


def test_a_client_that_loses_a_quarter_of_its_samples_is_found() -> None:
    rng = np.random.default_rng(1)
    alone = [rng.random(80) < 0.8 for _ in range(20)]
    worse = [own & (rng.random(80) < 0.7) if k < 5 else own for k, own in enumerate(alone)]
    assert losers(worse, alone) == 0.25
