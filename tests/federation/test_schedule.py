from __future__ import annotations

import pytest

from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.federation.schedule import Sampled

NAMES = [f"c{i}" for i in range(10)]


def test_everyone_by_default() -> None:
    assert Sampled().plan(3, NAMES, Chance(0)).invited == tuple(NAMES)


@pytest.mark.parametrize(("share", "count"), [(0.1, 1), (0.25, 3), (0.01, 1), (0.96, 10)])
def test_the_share_is_rounded_and_never_empty(share: float, count: int) -> None:
    assert len(Sampled(share).plan(0, NAMES, Chance(0)).invited) == count


def test_rounds_differ_seeds_differ_and_order_does_not_matter() -> None:
    plan = Sampled(0.3).plan(0, NAMES, Chance(0))
    assert plan == Sampled(0.3).plan(0, NAMES[::-1], Chance(0))
    assert plan != Sampled(0.3).plan(1, NAMES, Chance(0))
    assert plan != Sampled(0.3).plan(0, NAMES, Chance(1))


def test_over_many_rounds_everyone_is_asked_equally_often() -> None:
    counts = dict.fromkeys(NAMES, 0)
    for round in range(400):
        for client in Sampled(0.3).plan(round, NAMES, Chance(0)).invited:
            counts[client] += 1
    assert all(90 <= count <= 150 for count in counts.values())


def test_crashes_losses_and_availability_have_their_rates() -> None:
    schedule = Sampled(dropout=0.2, loss=0.1, availability={"c0": 0.5, "c1": 0.0})
    plans = [schedule.plan(round, NAMES, Chance(0)) for round in range(500)]
    assert 200 <= sum("c0" in p.invited for p in plans) <= 300
    assert not any("c1" in p.invited for p in plans)
    assert 70 <= sum("c2" in p.crashed for p in plans) <= 130
    assert 25 <= sum("c2" in p.lost for p in plans) <= 60
    assert not any(p.crashed & p.lost for p in plans)


def test_nobody_there_is_an_empty_round() -> None:
    assert Sampled(availability=0.0).plan(0, NAMES, Chance(0)).invited == ()
    assert Sampled().plan(0, [], Chance(0)).invited == ()


def test_an_unknown_name_in_availability() -> None:
    with pytest.raises(InputError, match="unknown client 'c99'; did you mean 'c9'"):
        Sampled(availability={"c99": 0.5}).among(NAMES)


def test_the_papers_stragglers_miss_as_many_rounds_as_their_number() -> None:
    schedule = Sampled(stragglers=3).among(NAMES)
    assert schedule.stragglers == {"c0": 1, "c1": 2, "c2": 3}
    assert schedule.plan(0, NAMES, Chance(0)).delay == {"c0": 1, "c1": 2, "c2": 3}
    assert schedule.plan(1, NAMES[1:], Chance(0)).delay == {"c1": 2, "c2": 3}
    assert schedule.among(NAMES) == schedule


def test_stragglers_that_are_absent_answer_on_time_in_one_round_of_as_many_and_one() -> None:
    schedule = Sampled(stragglers=3, straggling="absent").among(NAMES)
    plans = [schedule.plan(round, NAMES, Chance(0)) for round in range(12)]
    assert not any(plan.delay for plan in plans)
    for client, rounds in {"c0": [0, 2, 4, 6, 8, 10], "c1": [0, 3, 6, 9], "c2": [0, 4, 8]}.items():
        assert [n for n, plan in enumerate(plans) if client in plan.invited] == rounds
    assert all(set(NAMES[3:]) <= set(plan.invited) for plan in plans)


def test_stragglers_by_name_and_by_too_great_a_number() -> None:
    assert Sampled(stragglers={"c4": 2}).among(NAMES).plan(0, NAMES, Chance(0)).delay == {"c4": 2}
    with pytest.raises(InputError, match="stragglers names an unknown client 'd1'"):
        Sampled(stragglers={"d1": 2}).among(NAMES)
    with pytest.raises(InputError, match="stragglers=11 of 10 clients"):
        Sampled(stragglers=11).among(NAMES)
    with pytest.raises(InputError, match="among"):
        Sampled(stragglers=2).plan(0, NAMES, Chance(0))
