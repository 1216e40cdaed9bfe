"""From a data set to a federation: train, validation and test parts that follow one distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparsona.chance import Chance
from sparsona.data.dataset import Array, Dataset, Federation, Samples
from sparsona.errors import InputError
from sparsona.partition import PARTITIONS
from sparsona.partition._split import class_counts, federate


def dataset(targets: Array, official_test: int = 0, **fields: Any) -> Dataset:
    classes = int(targets.max()) + 1 if targets.dtype.kind == "i" else 0
    return Dataset("toy", np.zeros((len(targets), 1), np.float32), targets, classes, official_test, **fields)


def published(classes: int, train: int, test: int) -> Dataset:
    """`train` and `test` samples of each class, shuffled, the test part at the end."""
    rng = np.random.default_rng(0)
    parts = [rng.permutation(np.repeat(np.arange(classes), each)) for each in (train, test)]
    return dataset(np.concatenate(parts), official_test=classes * test)


def sound(federation: Federation) -> None:
    every = []
    for name, share in federation.splits.items():
        assert share.name == name
        for part in (share.train, share.validation, share.test):
            assert part.dtype == np.int64
            assert (np.diff(part) > 0).all()
            every.append(part)
        assert len(share.train)
        assert len(share.test)
    together = np.concatenate(every)
    assert len(np.unique(together)) == len(together)
    assert together.max() < len(federation.data)


def counts_tested(federation: Federation) -> Array:
    data = federation.data
    rows = [np.bincount(data.targets[s.test], minlength=data.classes) for s in federation.splits.values()]
    return np.stack(rows)


def dealt(federation: Federation) -> Array:
    """What the partition gave each client, validation included."""
    data = federation.data
    return np.stack(
        [
            np.bincount(data.targets[np.concatenate([s.train, s.validation])], minlength=data.classes)
            for s in federation.splits.values()
        ]
    )


SPECS = ["iid", "shift:0.5", "sorted:1.0", "classes:3:own", "dirichlet-clients:0.1", "dirichlet-classes:0.3"]


@pytest.mark.parametrize("spec", [*SPECS, "shards:2", "quantity:0.5"])
@pytest.mark.parametrize("use", ["official", "train", "pooled"])
def test_sound_and_repeatable(spec: str, use: str) -> None:
    data = published(10, 60, 12)
    federation = federate(data, spec, 6, Chance(3), use=use)
    sound(federation)
    assert federation.clients == ("c0", "c1", "c2", "c3", "c4", "c5")
    again = federate(data, spec, 6, Chance(3), use=use)
    for name, share in federation.splits.items():
        for field in ("train", "validation", "test"):
            assert np.array_equal(getattr(share, field), getattr(again.splits[name], field))


@pytest.mark.parametrize("spec", SPECS)
def test_official_tests_follow_the_training_classes(spec: str) -> None:
    data = published(10, 60, 12)
    federation = federate(data, spec, 6, Chance(0))
    train, test = dealt(federation), counts_tested(federation)
    quota = train * 12 / np.maximum(train.sum(0), 1)
    assert (abs(test - quota) < 1).all()
    assert (test[train == 0] == 0).all()
    assert (abs(test.sum(1) - quota.sum(1)) < 2).all()
    for share in federation.splits.values():
        assert (np.concatenate([share.train, share.validation]) < 600).all()
        assert (share.test >= 600).all()


def test_all_official_tests_of_a_held_class_are_dealt_out() -> None:
    federation = federate(published(10, 60, 12), "dirichlet-classes:0.3", 6, Chance(0))
    assert counts_tested(federation).sum() == 120


def test_scarce_official_tests_reach_everyone() -> None:
    """Ten test samples a class for a hundred clients: one for each, and not ten for the first ten."""
    federation = federate(published(10, 500, 10), "iid", 100, Chance(0))
    sizes = counts_tested(federation).sum(1)
    assert sizes.sum() == 100
    assert sizes.min() == 1
    assert sizes.max() <= 2


def test_a_client_without_official_tests_is_given_one_of_its_main_class() -> None:
    """Three test samples of each class for many small clients of one class, and one large client."""
    targets = np.concatenate([np.repeat([0, 1], [60, 40]), np.repeat([0, 1], [4, 4])])
    groups = np.concatenate([np.repeat([0, 1, 2], [98, 1, 1]), np.full(8, -1)])
    data = dataset(targets, official_test=8, groups=groups, group_names=("large", "x", "y"))
    federation = federate(data, "groups", 0, Chance(0))
    sound(federation)
    assert counts_tested(federation).tolist() == [[4, 2], [0, 1], [0, 1]]


def test_too_few_official_tests() -> None:
    with pytest.raises(InputError, match=r"no sample to spare for client 'c\d'; ask for fewer clients, or set aside"):
        federate(published(2, 20, 2), "iid", 8, Chance(0))


def test_official_tests_of_a_class_that_nobody_holds_stay_unused() -> None:
    federation = federate(published(10, 60, 12), "classes:2:shared", 6, Chance(0))
    assert (counts_tested(federation).sum(0) > 0).sum() == 2
    assert counts_tested(federation).sum() == 24


def test_train_ignores_and_pooled_joins_the_official_test_part() -> None:
    data = published(10, 50, 50)
    for use, total in (("train", 500), ("pooled", 1000)):
        shares = federate(data, "iid", 5, Chance(0), use=use).splits.values()
        seen = np.concatenate([np.concatenate([s.train, s.validation, s.test]) for s in shares])
        assert len(seen) == total
        assert (seen >= 500).any() == (use == "pooled")


def test_own_split_is_stratified() -> None:
    data = dataset(np.repeat(np.arange(4), 100))
    federation = federate(data, "dirichlet-classes:1.0", 3, Chance(0), test=0.2, validation=0.25)
    for share in federation.splits.values():
        total = len(share.train) + len(share.validation) + len(share.test)
        assert len(share.test) == int(total * 0.2 + 0.5)
        assert len(share.validation) == int((total - len(share.test)) * 0.25 + 0.5)
    whole = dealt(federation) + counts_tested(federation)
    assert (abs(counts_tested(federation) - 0.2 * whole) < 1.01).all()
    train = np.stack(list(class_counts(federation).values()))
    assert (abs(train - 0.6 * whole) < 2.01).all()
    assert (train[whole > 0] > 0).all()


def test_six_two_two() -> None:
    """pFedGate's split: a fifth to test on, a quarter of the rest to validate on."""
    share = federate(dataset(np.zeros(100, np.int64)), "iid", 1, Chance(0), validation=0.25).splits["c0"]
    assert [len(share.train), len(share.validation), len(share.test)] == [60, 20, 20]


def test_a_single_sample_of_a_class_is_trained_on() -> None:
    data = dataset(np.concatenate([np.zeros(20, np.int64), np.arange(1, 11)]))
    federation = federate(data, "iid", 1, Chance(0), test=0.3, validation=0.3)
    assert class_counts(federation)["c0"].tolist() == [5] + [1] * 10


def test_remainders_do_not_always_fall_on_the_same_classes() -> None:
    federation = federate(dataset(np.repeat(np.arange(10), 200)), "shift:0.0", 20, Chance(0), test=0.25)
    assert (counts_tested(federation).sum(0) > 20 * 2).all()


def test_tiny_clients() -> None:
    data = dataset(np.arange(6) % 2)
    share = federate(data, "iid", 3, Chance(0), test=0.9, validation=0.9).splits["c0"]
    assert [len(share.train), len(share.validation), len(share.test)] == [1, 0, 1]
    with pytest.raises(InputError, match="client 'c0' gets 1 samples and needs 2; ask for fewer clients"):
        federate(data, "iid", 6, Chance(0))


def test_no_validation() -> None:
    federation = federate(published(4, 30, 5), "iid", 3, Chance(0), validation=0)
    assert all(not len(share.validation) for share in federation.splits.values())


@given(
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=5),
    clients=st.integers(1, 6),
    test=st.floats(0.01, 0.99),
    validation=st.floats(0, 0.99),
    use=st.sampled_from(["official", "train", "pooled"]),
    official=st.integers(0, 20),
)
@example(sizes=[1, 1, 1, 1, 10], clients=2, test=0.5, validation=0.0, use="official", official=8)
@settings(max_examples=150, deadline=None)
def test_sound_or_one_clear_line(
    sizes: list[int], clients: int, test: float, validation: float, use: str, official: int
) -> None:
    targets = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    data = dataset(targets, min(official, len(targets)))
    try:
        federation = federate(
            data, "dirichlet-classes:0.5", clients, Chance(0), test=test, validation=validation, use=use
        )
    except InputError:
        # Only for want of samples: one a client at least, two where the client's own are split; of the publisher's
        # test part one of a class that the client holds.
        dealt_out = len(data) - (data.official_test if use != "pooled" else 0)
        rarest = np.bincount(targets[len(targets) - data.official_test :], minlength=len(sizes)).min()
        scarce = data.official_test < 4 * clients or rarest < clients
        assert dealt_out < 2 * clients or (use == "official" and scarce)
        return
    sound(federation)
    if use != "official" or not data.official_test:
        used = len(data) - (data.official_test if use != "pooled" else 0)
        assert dealt(federation).sum() + counts_tested(federation).sum() == used


def test_regression() -> None:
    data = dataset(np.linspace(0, 1, 120, dtype=np.float32), official_test=20)
    federation = federate(data, "iid", 4, Chance(0))
    sound(federation)
    assert [len(share.test) for share in federation.splits.values()] == [5] * 4
    assert {name: row.tolist() for name, row in class_counts(federation).items()} == {
        name: [len(share.train)] for name, share in federation.splits.items()
    }
    sound(federate(data, "quantity", 4, Chance(0), use="pooled"))


def test_missing_labels_are_a_class_of_their_own() -> None:
    data = dataset(np.repeat([-1, 0, 1], 20))
    federation = federate(data, "iid", 2, Chance(0))
    sound(federation)
    assert all(len(row) == 2 for row in class_counts(federation).values())


def test_groups_with_their_own_official_tests() -> None:
    groups = np.concatenate([np.repeat([0, 1], 10), np.repeat([1, 0], [2, 3])])
    data = dataset(np.arange(25) % 2, official_test=5, groups=groups, group_names=("basel", "zurich"))
    federation = federate(data, "groups", 2, Chance(0))
    assert federation.splits["basel"].test.tolist() == [22, 23, 24]
    assert federation.splits["zurich"].test.tolist() == [20, 21]
    pooled = federate(data, "groups", 0, Chance(0), use="pooled")
    assert sum(len(share.test) for share in pooled.splits.values()) == 5
    # Another partition of the same data does not look at groups.
    assert federate(data, "iid", 5, Chance(0)).clients == ("c0", "c1", "c2", "c3", "c4")


def test_a_group_without_official_tests() -> None:
    data = dataset(np.arange(6), 1, groups=np.array([0, 0, 1, 1, 1, 1]), group_names=("basel", "zurich"))
    with pytest.raises(InputError, match="group 'basel' has no samples in the publisher's test part; set aside"):
        federate(data, "groups", 0, Chance(0))


def test_small_groups_can_be_left_out() -> None:
    data = dataset(np.arange(6), groups=np.array([0, 1, 1, 1, 2, 2]), group_names=("basel", "bern", "zurich"))
    with pytest.raises(InputError, match="client 'basel' has 1 sample and needs 2; give it more, or leave"):
        federate(data, "groups", 0, Chance(0))
    assert federate(data, "groups:2", 0, Chance(0)).clients == ("bern", "zurich")


def test_a_plug_in_that_leaves_a_client_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(samples: Samples, clients: int, chance: Chance) -> dict[str, Array]:
        return {"a": np.arange(len(samples.labels)), "b": np.arange(0)}

    PARTITIONS.names()
    monkeypatch.setitem(PARTITIONS._found, "empty", empty)
    for data in (published(2, 5, 3), dataset(np.arange(4))):
        with pytest.raises(InputError, match="'b'"):
            federate(data, "empty", 2, Chance(0))


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("dirichlet", {}, "unknown partition 'dirichlet'; did you mean 'dirichlet-cl"),
        ("iid:3", {}, "takes no argument"),
        ("shift:much", {}, "must be of type float"),
        ("iid", {"use": "trian"}, "did you mean 'train'"),
        ("iid", {"test": 0.0}, "test fraction must be above 0 and below 1"),
        ("iid", {"test": float("nan")}, "test fraction"),
        ("iid", {"validation": 1.0}, "validation fraction"),
        ("groups", {}, "no natural groups"),
    ],
)
def test_bad_input(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        federate(published(2, 10, 5), spec, 2, Chance(0), **options)
    assert "\n" not in str(error.value)
