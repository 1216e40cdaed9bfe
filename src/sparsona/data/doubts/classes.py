"""Doubts about names: classes of few rows, classes that are exchanged, other names for the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites

SLIP, OTHERS = 3, 20
"""Most rows of a class that may be a typing error, and least rows of each of the two largest classes beside it."""


@DOUBTS.named("few-of-a-class")
def few_of_a_class(sites: Sites) -> Iterator[Doubt]:
    """A client with one class only, and a class that hardly any row has."""
    if sites.classes is None:
        return
    label = sites.classes
    alone = {c: mine for c, mine in sites.compared.items() if len(mine) and (label[mine] == label[mine[0]]).all()}
    if alone:
        held = sorted({str(label[mine[0]]) for mine in alone.values()})
        yield sites.of(
            list(alone),
            sites.target,
            f"all rows have the class {' or '.join(map(repr, held[:2]))}",
            "a constant answer is always right there, so these scores say nothing",
            "leave the file out, or judge by the score over all clients' rows together",
        )
    names, place, counts = np.unique(label[sites.used], return_inverse=True, return_counts=True)
    if len(names) < 3 or np.sort(counts)[-2] < OTHERS:
        return
    for k in np.flatnonzero(counts <= SLIP).tolist():
        rows = sites.used[place == k]
        yield sites.at(
            rows,
            sites.target,
            f"the class {str(names[k])!r} is in no other row: likely a slip",
            "it cannot be both learnt and tested",
            "correct it, or leave the line out",
        )


COMMON = 0.9
"""Share of the most frequent class above which a constant answer looks good."""


@DOUBTS.named("rare-class")
def rare_class(sites: Sites) -> Iterator[Doubt]:
    """Find a class so rare that accuracy cannot distinguish a model from a constant answer."""
    if sites.classes is None or sites.metric != "accuracy":
        return
    mine = sites.classes[sites.used]
    names, counts = np.unique(mine, return_counts=True)
    share = counts.max() / len(mine)
    if len(names) < 2 or share < COMMON:
        return
    usual = str(names[counts.argmax()])
    yield Doubt(
        sites.where(sites.used),
        sites.target,
        len(mine) - int(counts.max()),
        f"these have another class than {usual!r}, so always saying {usual!r} is {100 * share:.1f} % accurate",
        "accuracy cannot tell a good model from that",
        "pass --metric auc or --metric sensitivity, and try --class-weights balanced",
    )


ROWS, AGAINST, CLEAR = 10, -0.8, 2.5
"""Rows of each class to judge by; the cosine between the client's and the others' difference of classes; the length of
both differences in standard errors of chance."""


@DOUBTS.named("reversed-classes")
def reversed_classes(sites: Sites) -> Iterator[Doubt]:
    """A client whose two classes are exchanged: what is 1 elsewhere is 0 there."""
    if sites.classes is None or len(sites.rows.number_names) < 2 or len(sites.compared) < 3:
        return
    names = np.unique(sites.classes[sites.used])
    if len(names) != 2:
        return
    second = sites.classes == names[1]
    found = {client: difference(sites.rows.numbers[mine], second[mine]) for client, mine in sites.judged.items()}
    known = {client: value for client, value in found.items() if value is not None}
    for client, mine in known.items():
        others = [value for other, value in known.items() if other != client]
        if len(others) < 2:
            return
        usual = np.mean(others, axis=0)
        lengths = np.linalg.norm(mine), np.linalg.norm(usual)
        if min(lengths) < CLEAR * len(usual) ** 0.5 or mine @ usual > AGAINST * lengths[0] * lengths[1]:
            continue
        yield sites.of(
            [client],
            sites.target,
            f"{names[0]!s} and {names[1]!s} seem to be exchanged: all columns differ in the other direction",
            "the client teaches the others the opposite",
            "check which class is which in this file",
        )


def difference(values: Array, second: Array) -> Array | None:
    """The difference of the two classes' means by column, in standard errors; None where a class has few rows."""
    if min(second.sum(), (~second).sum()) < ROWS:
        return None
    parts = []
    for column in values.T:
        one, other = (column[side & ~np.isnan(column)] for side in (~second, second))
        if min(len(one), len(other)) < ROWS:
            parts.append(0.0)
            continue
        error = (one.var() / len(one) + other.var() / len(other)) ** 0.5
        parts.append((other.mean() - one.mean()) / error if error else 0.0)
    return np.array(parts)


SAME = (
    ("yes", "y", "true", "t", "ja", "j", "oui", "si", "positive", "pos", "+", "1"),
    ("no", "n", "false", "f", "nein", "non", "negative", "neg", "-", "0"),
    ("male", "m", "man"),
    ("female", "f", "w", "woman"),
)  # fmt: skip
"""Words that mean the same. A word may be in two lists: f is false beside t, and female beside m."""


@DOUBTS.named("coding")
def coding(sites: Sites) -> Iterator[Doubt]:
    """The same classes or categories under other names.

    TRUE and FALSE here, yes and no there; 0 and 1, and 1 and 2.
    """
    columns = dict(sites.rows.categories)
    if sites.classes is not None:
        columns = {sites.target: sites.classes} | columns
    for name, values in columns.items():
        held = {client: frozenset(np.unique(values[mine]).tolist()) - {""} for client, mine in sites.judged.items()}
        sides = _sides(held, name == sites.target)
        if sides is None:
            continue
        one, other, few = sides
        yield sites.of(
            few,
            name,
            f"it holds {_named(other)}, elsewhere {_named(one)}: probably the same under other names",
            "the model takes them for different ones, and learns each from its own clients only",
            "write them alike in all files",
        )


def _named(names: frozenset[str]) -> str:
    return " and ".join(sorted(names)[:3])


def _sides(held: Mapping[str, frozenset[str]], target: bool) -> tuple[frozenset[str], frozenset[str], list[str]] | None:
    """Two ways of naming: the usual one, the other one, and the clients with the other one."""
    ways: dict[frozenset[str], list[str]] = {}
    for client, names in held.items():
        if names:
            ways.setdefault(names, []).append(client)
    if len(ways) < 2:
        return None
    usual, *others = sorted(ways, key=lambda names: -len(ways[names]))
    for other in others:
        if _mean_the_same(usual, other) or (target and _recoded(usual, other, list(ways))):
            return usual, other, ways[other]
    return None


def _mean_the_same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether the names that only one side has mean the same as those that only the other side has.

    >>> _mean_the_same(frozenset(["TRUE", "FALSE"]), frozenset(["yes", "no"]))
    True
    """
    here, there = ({name.strip().lower() for name in names} for names in (one - other, other - one))
    if not here or not there or max(len(here), len(there)) > 2:
        return False
    return all(any(word in same and same_as_one(there, same) for same in SAME) for word in here)


def same_as_one(words: set[str], same: tuple[str, ...]) -> bool:
    """Return whether one of the words is in a list of words that mean the same."""
    return any(word in same for word in words)


def _recoded(one: frozenset[str], other: frozenset[str], ways: list[frozenset[str]]) -> bool:
    """Return whether two sides have equally many classes under different names, and no client has names of both."""
    if len(one) != len(other) or len(one) < 2 or len(ways) > 3:
        return False
    if not one & other:
        return True
    numbers = all(name.lstrip("-").isdigit() for name in one | other)
    return numbers and len(one) == 2 and not any(one | other <= way for way in ways)
