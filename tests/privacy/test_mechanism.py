from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from sparsona.chance import Chance
from sparsona.privacy import PrivacySettings
from sparsona.privacy.mechanism import BudgetSpent, Mechanism, Meter, SecretSource

MECHANISM = Mechanism(clip=0.5, noise=4.0, rate=0.25, delta=1e-5, most=200)
CHANCES = {"seed": Chance(3), "secret": Chance(0, b"k" * 32)}


@pytest.mark.parametrize("chance", CHANCES.values(), ids=CHANCES)
def test_rows_are_sampled_at_the_rate_and_noise_has_its_deviation(chance: Chance) -> None:
    queries = list(Meter(MECHANISM, chance, "a", 1000).ask(200))
    counts = np.array([len(query.sampled) for query in queries])
    assert counts.mean() == pytest.approx(250, abs=4)
    assert counts.var() == pytest.approx(1000 * 0.25 * 0.75, rel=0.35)
    each = np.bincount(np.concatenate([query.sampled for query in queries]), minlength=1000)
    assert each.min() > 15
    assert queries[0].expected == 250
    noise = np.concatenate([query.noise(1000) for query in queries[:100]]).astype(np.float64)
    assert noise.mean() == pytest.approx(0, abs=0.02)
    assert noise.std() == pytest.approx(2.0, rel=0.01)
    assert (noise**4).mean() / noise.var() ** 2 == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize("chance", CHANCES.values(), ids=CHANCES)
def test_a_query_number_has_its_own_noise_whatever_was_asked_before(chance: Chance) -> None:
    whole = [query.noise(50) for query in Meter(MECHANISM, chance, "a", 10).ask(6)]
    later = [query.noise(50) for query in Meter(MECHANISM, chance, "a", 10, used=3).ask(3)]
    assert np.array_equal(whole[3:], later)
    assert len({noise.tobytes() for noise in whole}) == 6
    (other,) = Meter(MECHANISM, chance, "b", 10).ask()
    assert not np.array_equal(other.noise(50), whole[0])


def test_another_secret_gives_other_noise() -> None:
    one, other = (SecretSource(key).standard_normal(100) for key in (b"one", b"other"))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.4
    assert not np.array_equal(one, other)


def test_queries_are_charged_before_they_are_answered() -> None:
    charged: list[int] = []
    meter = Meter(MECHANISM, Chance(0), "a", 10, used=7, charge=charged.append)
    queries = meter.ask(5)
    assert (charged, meter.used) == ([12], 12)
    next(queries)
    meter.ask()
    assert charged == [12, 13]


def test_a_charge_that_fails_leaves_nothing_answered() -> None:
    def full_disk(used: int) -> None:
        raise OSError("no space")

    meter = Meter(MECHANISM, Chance(0), "a", 10, charge=full_disk)
    with pytest.raises(OSError, match="no space"):
        meter.ask()
    assert meter.used == 0


def test_more_queries_than_the_budget_has_are_refused_as_a_whole() -> None:
    meter = Meter(MECHANISM, Chance(0), "a", 10, used=198)
    with pytest.raises(BudgetSpent, match="198 of 200"):
        meter.ask(3)
    assert len(list(islice(meter.ask(2), 5))) == 2
    with pytest.raises(BudgetSpent):
        meter.ask()


def test_a_mechanism_keeps_to_its_epsilon_over_the_planned_queries() -> None:
    settings = PrivacySettings(epsilon=3.0, delta=1e-4)
    found = Mechanism.planned(settings, examples=100, batch=20, queries=30)
    assert (found.rate, found.most, found.clip) == (0.2, 30, 1.0)
    assert found.epsilon(10) < found.epsilon(30) <= 3.0
    assert Mechanism.planned(replace(settings, epsilon=None, noise=2.5), 10, 20, 3).noise == 2.5
    assert Mechanism.planned(settings, 10, 20, 3).rate == 1.0
