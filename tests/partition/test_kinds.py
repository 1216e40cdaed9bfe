"""The partitions: what each promises, exactly, and what all promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.chance import Chance
from sparsona.data.dataset import Array, Indices, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import client_names

BY_CLASS = ("classes", "dirichlet-classes", "dirichlet-clients", "shards", "shift", "sorted")
BLIND = ("iid", "quantity")


def balanced(classes: int, each: int) -> Array:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(classes), each))


def deal(name: str, labels: Array, clients: int, *options: object, seed: int = 0) -> list[Indices]:
    samples = Samples(labels, int(labels.max()) + 1)
    parts = PARTITIONS.get(name)(samples, clients, Chance(seed), *options)
    assert tuple(parts) == client_names(clients)
    return list(parts.values())


def held(labels: Array, parts: list[Indices]) -> list[list[int]]:
    return [np.unique(labels[part]).tolist() for part in parts]


def counts(labels: Array, parts: list[Indices]) -> Array:
    return np.stack([np.bincount(labels[part], minlength=int(labels.max()) + 1) for part in parts])


def sound(parts: list[Indices], total: int) -> None:
    for part in parts:
        assert part.dtype == np.int64
        assert len(part)
        assert (np.diff(part) > 0).all()
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < total


def test_registered() -> None:
    assert set(PARTITIONS.names()) >= {*BY_CLASS, *BLIND, "groups"}


@given(
    name=st.sampled_from(BY_CLASS + BLIND),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    clients=st.integers(1, 12),
    seed=st.integers(0, 3),
)
@settings(max_examples=250, deadline=None)
def test_sound_or_one_clear_line(name: str, sizes: list[int], clients: int, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    samples = Samples(labels, len(sizes))
    impossible = len(labels) < clients
    if name == "classes":
        impossible = impossible or len(sizes) < 2 or min(sizes) < clients
    if name == "shards":
        impossible = impossible or len(labels) < 2 * clients
    if impossible:
        with pytest.raises(InputError, match=r"^[^\n]+$"):
            PARTITIONS.get(name)(samples, clients, Chance(seed))
        return
    parts = PARTITIONS.get(name)(samples, clients, Chance(seed))
    sound(list(parts.values()), len(labels))
    again = PARTITIONS.get(name)(samples, clients, Chance(seed))
    assert all(np.array_equal(parts[c], again[c]) for c in parts)
    if name not in ("classes", "dirichlet-clients"):
        assert sum(map(len, parts.values())) == len(labels)


@given(
    name=st.sampled_from(("shift", "sorted")),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    clients=st.integers(1, 10),
    ratio=st.floats(0, 1),
)
@settings(max_examples=100, deadline=None)
def test_a_ratio_between_keeps_sizes_even(name: str, sizes: list[int], clients: int, ratio: float) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    if len(labels) < clients:
        return
    parts = deal(name, labels, clients, ratio)
    sound(parts, len(labels))
    lengths = [len(part) for part in parts]
    assert sum(lengths) == len(labels)
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("name", BY_CLASS + BLIND)
def test_another_seed_deals_otherwise(name: str) -> None:
    labels = balanced(10, 40)
    first, second = (np.concatenate(deal(name, labels, 4, seed=seed)) for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_labels_need_not_be_consecutive() -> None:
    labels = np.where(balanced(3, 20) == 1, 9, balanced(3, 20))
    for name in BY_CLASS:
        sound(deal(name, labels, 3), 60)


# iid


def test_iid_is_even() -> None:
    parts = deal("iid", balanced(10, 103), 4)
    assert [len(part) for part in parts] == [258, 258, 257, 257]
    assert (counts(balanced(10, 103), parts) > 10).all()


# shift


def test_shift_two_clients_hold_five_classes_each() -> None:
    labels = balanced(10, 60)
    assert held(labels, deal("shift", labels, 2)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_shift_ten_clients_hold_five_classes_each() -> None:
    labels = balanced(10, 600)
    expected = [[0, 1, 2, 3, 4]] * 5 + [[5, 6, 7, 8, 9]] * 5
    assert held(labels, deal("shift", labels, 10)) == expected


def test_shift_the_middle_one_of_five_holds_all() -> None:
    labels = balanced(10, 600)
    low, high = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]
    assert held(labels, deal("shift", labels, 5)) == [low, low, list(range(10)), high, high]


def test_shift_ratio_zero_is_stratified() -> None:
    labels = balanced(10, 60)
    assert (counts(labels, deal("shift", labels, 10, 0.0)) == 6).all()


def test_shift_half() -> None:
    """Half of each client's samples is even; of the other half, all are from its side of the classes."""
    labels = balanced(10, 60)
    table = counts(labels, deal("shift", labels, 2, 0.5))
    assert table.sum(1).tolist() == [300, 300]
    assert table[0].tolist() == [45] * 5 + [15] * 5
    assert table[1].tolist() == [15] * 5 + [45] * 5


def test_shift_two_labels_are_one_each() -> None:
    """IMDB: half of two labels is one label."""
    labels = balanced(2, 50)
    assert held(labels, deal("shift", labels, 2)) == [[0], [1]]


def test_shift_cuts_unequal_classes_at_half_the_samples() -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    assert counts(labels, deal("shift", labels, 2)).tolist() == [[50, 0, 0], [0, 30, 20]]
    labels = np.repeat([0, 1, 2], [40, 40, 20])
    assert counts(labels, deal("shift", labels, 2)).tolist() == [[40, 10, 0], [0, 30, 20]]


# sorted


def test_sorted_one_class_each() -> None:
    labels = balanced(10, 30)
    assert held(labels, deal("sorted", labels, 10)) == [[c] for c in range(10)]


def test_sorted_half() -> None:
    labels = balanced(10, 60)
    table = counts(labels, deal("sorted", labels, 10, 0.5))
    assert (table.sum(1) == 60).all()
    assert (np.diag(table) >= 30).all()
    assert table.argmax(1).tolist() == list(range(10))


def test_sorted_ratio_zero_is_random_and_even() -> None:
    labels = balanced(4, 100)
    table = counts(labels, deal("sorted", labels, 4, 0.0))
    assert (table.sum(1) == 100).all()
    assert (table > 10).all()


# classes


def test_classes_own() -> None:
    labels = balanced(10, 100)
    parts = deal("classes", labels, 10, 6, "own")
    sets = held(labels, parts)
    assert all(len(own) == 6 for own in sets)
    assert len({tuple(own) for own in sets}) > 1
    assert set(counts(labels, parts).ravel().tolist()) == {0, 10}


def test_classes_shared() -> None:
    labels = balanced(10, 100)
    parts = deal("classes", labels, 10, 6, "shared")
    sets = held(labels, parts)
    assert len(sets[0]) == 6
    assert all(own == sets[0] for own in sets)
    assert sum(map(len, parts)) == 600


def test_classes_all_of_them_is_everything() -> None:
    labels = balanced(10, 33)
    assert sum(map(len, deal("classes", labels, 4, 10))) == 330


def test_classes_sizes_of_the_paper() -> None:
    """SPFL on CIFAR-10: 6 of 10 classes, 10 clients, 3,000 samples each (2,400 to train on, 600 to test on)."""
    labels = balanced(10, 5000)
    assert {len(part) for part in deal("classes", labels, 10, 6)} == {3000}


# dirichlet-clients


@pytest.mark.parametrize("alpha", [1e-12, 0.1, 0.3, 100.0])
def test_dirichlet_clients_have_one_size(alpha: float) -> None:
    labels = balanced(10, 50)
    parts = deal("dirichlet-clients", labels, 7, alpha)
    sound(parts, 500)
    assert {len(part) for part in parts} == {71}


def test_dirichlet_clients_are_skewed_by_alpha() -> None:
    labels = balanced(10, 500)

    def largest_share(alpha: float) -> float:
        table = counts(labels, deal("dirichlet-clients", labels, 20, alpha))
        return float((table.max(1) / table.sum(1)).mean())

    assert largest_share(0.1) > 0.4 > largest_share(1.0) > 0.17 > largest_share(1000.0)


def test_dirichlet_clients_at_the_size_of_the_paper() -> None:
    labels = balanced(100, 500)
    parts = deal("dirichlet-clients", labels, 100, 0.1)
    sound(parts, 50_000)
    assert {len(part) for part in parts} == {500}


# dirichlet-classes


def test_dirichlet_classes_deals_everything() -> None:
    labels = balanced(10, 100)
    parts = deal("dirichlet-classes", labels, 10, 0.4)
    sound(parts, 1000)
    assert sum(map(len, parts)) == 1000
    assert len({len(part) for part in parts}) > 1


def test_dirichlet_classes_leaves_nobody_with_less_than_two() -> None:
    labels = balanced(2, 100)
    parts = deal("dirichlet-classes", labels, 50, 0.001)
    sound(parts, 200)
    assert min(map(len, parts)) == 2
    assert sum(map(len, parts)) == 200


def test_dirichlet_classes_as_many_clients_as_samples() -> None:
    parts = deal("dirichlet-classes", balanced(5, 6), 30, 0.01)
    assert {len(part) for part in parts} == {1}


def test_dirichlet_classes_is_even_for_a_large_alpha() -> None:
    labels = balanced(4, 1000)
    table = counts(labels, deal("dirichlet-classes", labels, 4, 1e6))
    assert (abs(table - 250) < 60).all()


# shards


def test_shards_of_the_paper() -> None:
    """McMahan: 100 clients with two shards of 300 of 60,000 images; here a tenth of that."""
    labels = balanced(10, 600)
    parts = deal("shards", labels, 100)
    assert {len(part) for part in parts} == {60}
    assert {len(own) for own in held(labels, parts)} <= {1, 2}
    assert set(counts(labels, parts).ravel().tolist()) == {0, 30, 60}


def test_one_shard_each() -> None:
    labels = balanced(10, 7)
    assert {len(own) for own in held(labels, deal("shards", labels, 10, 1))} == {1}


# quantity


def test_quantity_skews_sizes_only() -> None:
    labels = balanced(2, 2000)
    parts = deal("quantity", labels, 10, 0.5)
    sizes = np.array([len(part) for part in parts])
    assert sizes.sum() == 4000
    assert sizes.min() >= 10
    assert sizes.max() > 2 * np.median(sizes) > 4 * sizes.min()
    table = counts(labels, parts)[sizes > 400]
    assert (abs(table[:, 0] / table.sum(1) - 0.5) < 0.1).all()


def test_quantity_with_few_samples() -> None:
    assert min(map(len, deal("quantity", balanced(2, 10), 10, 0.01))) == 2
    assert {len(part) for part in deal("quantity", balanced(2, 5), 10)} == {1}


# groups


def writers(sizes: list[int]) -> Samples:
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    names = tuple(f"writer{i}" for i in range(len(sizes)))
    return Samples(np.zeros(len(groups), np.int64), 1, groups, names)


def test_groups_all() -> None:
    samples = writers([3, 1, 4])
    assert samples.groups is not None
    for clients in (0, 3):
        parts = PARTITIONS.get("groups")(samples, clients, Chance(0))
        assert tuple(parts) == ("writer0", "writer1", "writer2")
        sound(list(parts.values()), 8)
        assert all((samples.groups[part] == i).all() for i, part in enumerate(parts.values()))
        assert [len(part) for part in parts.values()] == [3, 1, 4]


def test_groups_a_random_choice() -> None:
    choices = {tuple(PARTITIONS.get("groups")(writers([2] * 20), 5, Chance(seed))) for seed in range(4)}
    assert len(choices) > 1
    assert all(len(choice) == 5 for choice in choices)


def test_groups_without_the_small_ones_and_the_nameless() -> None:
    parts = PARTITIONS.get("groups")(writers([3, 1, 4]), 0, Chance(0), fewest=2)
    assert tuple(parts) == ("writer0", "writer2")
    samples = Samples(np.zeros(4), 0, np.array([-1, 0, 1, 0]))
    parts = PARTITIONS.get("groups")(samples, 0, Chance(0))
    assert {name: part.tolist() for name, part in parts.items()} == {"c0": [1, 3], "c1": [2]}


# errors


@pytest.mark.parametrize("name", BY_CLASS)
def test_regression_has_no_classes(name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' needs class labels.*use iid, quantity or groups"):
        PARTITIONS.get(name)(Samples(np.linspace(0, 1, 50), 0), 2, Chance(0))


@pytest.mark.parametrize("name", BLIND)
def test_regression_without_classes(name: str) -> None:
    sound(list(PARTITIONS.get(name)(Samples(np.linspace(0, 1, 50), 0), 3, Chance(0)).values()), 50)


@pytest.mark.parametrize("name", BY_CLASS + BLIND)
def test_numbers_of_clients_that_cannot_be(name: str) -> None:
    samples = Samples(np.zeros(5, np.int64), 1)
    with pytest.raises(InputError, match="6 clients asked for, but only 5 samples"):
        PARTITIONS.get(name)(samples, 6, Chance(0))
    with pytest.raises(InputError, match="ask for at least 1"):
        PARTITIONS.get(name)(samples, 0, Chance(0))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shift", (1.5,), "ratio must be from 0 to 1, not 1.5"),
        ("sorted", (float("nan"),), "ratio must be from 0 to 1"),
        ("dirichlet-clients", (0.0,), "alpha must be above 0"),
        ("dirichlet-classes", (-1.0,), "alpha must be above 0"),
        ("dirichlet-classes", (float("inf"),), "alpha must be above 0"),
        ("quantity", (float("nan"),), "alpha must be above 0"),
        ("shards", (0,), "at least 1 shard"),
        ("shards", (40,), "cannot cut 100 samples into 160 shards"),
        ("classes", (11,), "cannot hold 11 of 10 classes; ask for 1 to 10"),
        ("classes", (0,), "cannot hold 0 of 10 classes"),
        ("classes", (2, "mine"), "write classes:2:own or classes:2:shared"),
    ],
)
def test_bad_options(name: str, options: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        deal(name, balanced(10, 10), 4, *options)


def test_classes_too_small_to_cut() -> None:
    with pytest.raises(InputError, match="cannot cut class 1 with its 2 samples for 3 clients; ask for at most 2"):
        deal("classes", np.repeat([0, 1], [10, 2]), 3, 1)


@pytest.mark.parametrize(
    ("samples", "clients", "fewest", "message"),
    [
        (Samples(np.zeros(4), 0), 2, 1, "no natural groups; use iid"),
        (writers([2, 2]), 3, 1, "3 clients asked for, but the data have 2 natural groups; ask for at most 2"),
        (writers([2, 2]), -1, 1, "or 0 for all"),
        (writers([5, 2]), 2, 3, "have 1 natural groups of at least 3 samples"),
        (writers([5, 2]), 0, 9, "no natural groups of at least 9 samples; the largest group has 5"),
        (Samples(np.zeros(2), 0, np.array([0, 1]), ("a", "a")), 0, 1, "same name"),
    ],
)
def test_groups_that_cannot_be(samples: Samples, clients: int, fewest: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PARTITIONS.get("groups")(samples, clients, Chance(0), fewest=fewest)
