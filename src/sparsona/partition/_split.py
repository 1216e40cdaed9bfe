"""Make a federation: divide a data set among clients, then split each part into train, validation and test.

A part is split at random, stratified by class, or along a column: by time, the last rows are held out; by group, whole
groups are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Array, ClientSplit, Dataset, Federation, Indices, Samples
from sparsona.data.schema.roles import ColumnSplit
from sparsona.errors import InputError
from sparsona.options import option
from sparsona.partition import PARTITIONS
from sparsona.partition._deal import are_classes, ranks
from sparsona.registry import bind, split_spec, suggest

USES = ("official", "train", "pooled")
OWN_TESTS = "set aside test samples of each client instead (use 'train' or 'pooled')"


@dataclass(frozen=True)
class Split:
    """The split of each client's samples into training, validation and test samples."""

    use: Literal["official", "train", "pooled"] = option(
        "official",
        "test on the publisher's test part (official), or divide the train part or both parts (pooled) in each client",
    )
    test: float = option(0.2, "share of a client's samples that is tested on", gt=0, lt=1)
    validation: float = option(0.1, "share of the other samples that choices are made on", ge=0, lt=1)
    by: str = option(
        "random", "random, time:COLUMN (test the last rows), time:COLUMN:GAP (leave a gap), group:COLUMN (whole groups)"
    )
    repeat: int = option(0, "number of the random division", ge=0)
    fewest: int = option(5, "least number of test rows with which a client has a score", ge=1)


def federate(
    data: Dataset,
    spec: str,
    clients: int,
    chance: Chance,
    *,
    test: float = 0.2,
    validation: float = 0.1,
    use: str = "official",
    along: ColumnSplit | None = None,
    repeat: int = 0,
) -> Federation:
    """Divide `data` among `clients` by the partition `spec` ("dirichlet-classes:0.3"), with a test part each.

    A client's test part follows its training distribution. With `use` official and a published test part, the
    partition divides the training part, and the test part follows it class by class. With train the published test
    part is ignored; with pooled it joins the training part. Then, and without such a part, the fraction `test` of each
    client's samples is held out. The fraction `validation` of the remaining samples is held out as well; it may be
    empty, training samples never are. Samples are split at random, stratified by class, or `along` a column; `repeat`
    counts repeated random splits of the same clients.

    >>> data = Dataset("toy", np.zeros((100, 2), np.float32), np.repeat(np.arange(2), 50), classes=2)
    >>> federation = federate(data, "iid", 2, Chance(0))
    >>> [(len(s.train), len(s.validation), len(s.test)) for s in federation.splits.values()]
    [(36, 4, 10), (36, 4, 10)]
    """
    if use not in USES:
        raise InputError(f"unknown use {use!r} of the publisher's test part{suggest(use, USES)}")
    if not 0 < test < 1:
        raise InputError(f"the test fraction must be above 0 and below 1, not {test}")
    if not 0 <= validation < 1:
        raise InputError(f"the validation fraction must be at least 0 and below 1, not {validation}")
    name, _ = split_spec(spec)
    partition = PARTITIONS.get(name)
    options = bind("partition", spec, partition, skip=3)
    dealt = len(data) - (0 if use == "pooled" else data.official_test)
    groups = None if data.groups is None else data.groups[:dealt]
    parts = partition(Samples(data.targets[:dealt], data.classes, groups, data.group_names), clients, chance, **options)
    strata = _strata(data)
    values = None if along is None or data.rows is None else data.rows.along

    def aside(part: Indices, count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
        if along is None or values is None:
            return _set_aside(part, strata, count, rng)
        return set_aside_along(part, values, along, count, rng)

    official: Mapping[str, Indices] = {}
    if use == "official" and data.official_test:
        theirs = np.arange(dealt, len(data))
        if name == "groups" and data.groups is not None and (data.groups[theirs] >= 0).any():
            official = _by_group(parts, data.groups, theirs)
        else:
            official = _in_proportion(parts, strata, theirs, chance.rng("split"))
    shares = {}
    for client, part in parts.items():
        rng = chance.rng("split", round=repeat, client=client) if repeat else chance.rng("split", client=client)
        if len(part) < (needed := 1 if official else 2):
            raise InputError(_too_few(data, name, client, len(part), needed))
        if official:
            rest, tested = part, official[client]
        else:
            count = min(max(_round(test * len(part)), 1), len(part) - 1)
            rest, tested = aside(part, count, rng)
            if along is not None and not (len(rest) and len(tested)):
                raise InputError(
                    f"client {client!r} cannot be split by {along.by}: its {len(part)} rows leave {len(rest)} to train "
                    f"on and {len(tested)} to test; choose another column, a smaller gap, or --split random"
                )
        count = min(_round(validation * len(rest)), len(rest) - 1)
        train, checked = aside(rest, count, rng)
        if not len(train):  # a column may not allow a second cut
            train, checked = rest, rest[:0]
        shares[client] = ClientSplit(client, train, checked, tested)
    return Federation(data, shares)


def _too_few(data: Dataset, partition: str, client: str, found: int, needed: int) -> str:
    """Return the error for a client with too few samples."""
    where = dict(zip(data.group_names, data.places, strict=False)).get(client, "")
    if partition != "groups":
        return f"client {client!r} gets {found} samples and needs {needed}; ask for fewer clients"
    who = where if where.startswith("client ") else f"client {client!r}" + (f" ({where})" if where else "")
    fix = f"give it more, or leave small clients out with --partition groups:{needed}"
    return f"{who} has {found} {'sample' if found == 1 else 'samples'} and needs {needed}; {fix}"


def class_counts(federation: Federation) -> dict[str, Indices]:
    """Return the number of training samples per class and client; without classes, their total."""
    targets, classes = federation.data.targets, federation.data.classes
    if not are_classes(targets):
        return {name: np.array([len(share.train)]) for name, share in federation.splits.items()}
    labels = {name: targets[share.train] for name, share in federation.splits.items()}
    return {name: np.bincount(row[row >= 0], minlength=classes) for name, row in labels.items()}


def _strata(data: Dataset) -> Indices:
    """Return the class of each sample, numbered from 0; all 0 without classes."""
    if not are_classes(data.targets):
        return np.zeros(len(data), np.int64)
    return np.unique(data.targets, return_inverse=True)[1].astype(np.int64)


def _round(number: float) -> int:
    """Round half up; Python's own rounding goes to the even neighbour."""
    return math.floor(number + 0.5)


def _set_aside(part: Indices, strata: Indices, count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Hold out `count` samples of `part` with its class proportions; return the rest and these."""
    own = np.unique(strata[part], return_inverse=True)[1]
    order = np.lexsort((rng.permutation(len(part)), own))
    sizes = np.bincount(own)
    aside = ranks(sizes) < np.repeat(_apportion(sizes, count, rng), sizes)
    return np.sort(part[order[~aside]]), np.sort(part[order[aside]])


def _apportion(sizes: Indices, count: int, rng: np.random.Generator) -> Indices:
    """Split `count` in proportion to `sizes` by largest remainder, with random ties.

    One sample per class stays behind if possible, because a test of an untrained class says nothing.
    """
    quota = sizes * count / sizes.sum()
    limit = sizes - 1
    given: Indices = np.minimum(np.floor(quota + 1e-9).astype(np.int64), limit)
    while missing := count - int(given.sum()):
        if (given == limit).all():
            limit = sizes
        free = np.flatnonzero(given < limit)
        wish = np.round(quota - given, 9)[free]
        given[free[np.lexsort((rng.random(len(free)), -wish))][:missing]] += 1
    return given


def _by_group(parts: Mapping[str, Indices], groups: Indices, theirs: Indices) -> dict[str, Indices]:
    """Return each client's part of the published test samples, by its own group."""
    dealt = {}
    for client, part in parts.items():
        dealt[client] = theirs[groups[theirs] == groups[part[0]]]
        if not len(dealt[client]):
            raise InputError(f"group {client!r} has no samples in the publisher's test part; {OWN_TESTS}")
    return dealt


def _in_proportion(
    parts: Mapping[str, Indices], strata: Indices, theirs: Indices, rng: np.random.Generator
) -> dict[str, Indices]:
    """Divide the published test part so that each client's test classes match its training classes.

    The test samples of a class are split in proportion to the clients' training samples of it. Remainders go to the
    largest ones, and a client that lost in earlier classes comes first, so that no client loses in every class.
    """
    held = np.stack([np.bincount(strata[part], minlength=int(strata.max()) + 1) for part in parts.values()])
    owner = np.full(len(theirs), -1)
    owed = np.zeros(len(parts))
    for c in range(held.shape[1]):
        pool = rng.permutation(np.flatnonzero(strata[theirs] == c))
        total = int(held[:, c].sum())
        if not total or not len(pool):
            continue
        given, remainder = np.divmod(held[:, c] * len(pool), total)
        wish = np.where(remainder > 0, np.round(remainder / total + owed, 9), -np.inf)
        winners = np.lexsort((rng.random(len(parts)), -wish))[: len(pool) - int(given.sum())]
        given[winners] += 1
        owed += held[:, c] * len(pool) / total - given
        owner[pool] = np.repeat(np.arange(len(parts)), given)
    for i, client in enumerate(parts):
        if not (owner == i).any():
            owner[_gift(client, held[i], strata[theirs], owner)] = i
    return {client: theirs[owner == i] for i, client in enumerate(parts)}


def _gift(client: str, held: Indices, strata: Indices, owner: Indices) -> int:
    """Return a test sample of the most frequent class of a client that got none, from the part with most of that class.

    Where no part can spare one of that class, the client's next frequent class is tried.
    """
    totals = np.bincount(owner[owner >= 0])
    for c in np.argsort(-held, kind="stable")[: np.count_nonzero(held)]:
        spare = np.flatnonzero((strata == c) & (owner >= 0))
        spare = spare[totals[owner[spare]] > 1]
        if len(spare):
            richest = np.bincount(owner[spare]).argmax()
            return int(spare[owner[spare] == richest][0])
    problem = f"the publisher's test part has no sample to spare for client {client!r}"
    raise InputError(f"{problem}; ask for fewer clients, or {OWN_TESTS}")


def set_aside_along(
    part: Indices, values: Array, along: ColumnSplit, count: int, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return the remaining samples, and about `count` samples that are set aside; either may be empty.

    By time the rows after the cut are set aside; rows of one time stay together, and rows that lie less than the gap
    before the cut are in neither part. By group the groups are drawn at random until they hold `count` samples.

    >>> times = np.array([5.0, 1.0, 2.0, 3.0, 4.0])
    >>> set_aside_along(np.arange(5), times, ColumnSplit("time", "t", gap=1.5), 2, np.random.default_rng(0))
    (array([1, 2]), array([0, 4]))
    """
    if along.by == "time":
        return _latest_aside(part, values[part], along.gap, count)
    return _groups_aside(part, values[part], count, rng)


def _latest_aside(part: Indices, times: Array, gap: float, count: int) -> tuple[Indices, Indices]:
    if count < 1:
        return part, part[:0]
    cut = np.sort(times)[len(times) - count]
    return part[times < cut] if gap <= 0 else part[times <= cut - gap], part[times >= cut]


def _groups_aside(part: Indices, groups: Array, count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    names, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if count < 1 or len(names) < 2:
        return part, part[:0]
    drawn = rng.permutation(len(names))[:-1]
    before = np.concatenate([[0], np.cumsum(sizes[drawn])[:-1]])
    aside = np.isin(number, drawn[before < count])
    return part[~aside], part[aside]
