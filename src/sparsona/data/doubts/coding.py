"""The same classes or categories under other names: TRUE and FALSE here, yes and no there; 0 and 1, and 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sparsona.data.doubts import DOUBTS, Doubt, Sites

SAME = (
    ("yes", "y", "true", "t", "ja", "j", "oui", "si", "positive", "pos", "+", "1"),
    ("no", "n", "false", "f", "nein", "non", "negative", "neg", "-", "0"),
    ("male", "m", "man"),
    ("female", "f", "w", "woman"),
)  # fmt: skip
"""Words that mean the same. A word may be in two lists: f is false beside t, and female beside m."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for clients that name the same things otherwise."""
    columns = dict(sites.rows.categories)
    if sites.classes is not None:
        columns = {sites.target: sites.classes} | columns
    for name, values in columns.items():
        held = {client: frozenset(np.unique(values[mine]).tolist()) - {""} for client, mine in sites.judged.items()}
        sides = _sides(held, name == sites.target)
        if sides is None:
            continue
        one, other, few = sides
        rows = np.concatenate([sites.clients[client] for client in few])
        yield Doubt(
            sites.called(few),
            name,
            len(rows),
            f"it holds {_named(other)}, elsewhere {_named(one)}: probably the same under other names",
            "the model takes them for different ones, and learns each from its own clients only",
            "write them alike in all files",
        )


def _named(names: frozenset[str]) -> str:
    return " and ".join(sorted(names)[:3])


def _sides(held: Mapping[str, frozenset[str]], target: bool) -> tuple[frozenset[str], frozenset[str], list[str]] | None:
    """Two ways of naming: the usual one, the other, and the clients that have the other."""
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
    """Whether the names only here and the names only there are words for the same.

    >>> _mean_the_same(frozenset(["TRUE", "FALSE"]), frozenset(["yes", "no"]))
    True
    """
    here, there = ({name.strip().lower() for name in names} for names in (one - other, other - one))
    if not here or not there or max(len(here), len(there)) > 2:
        return False
    return all(any(word in same and same_as_one(there, same) for same in SAME) for word in here)


def same_as_one(words: set[str], same: tuple[str, ...]) -> bool:
    """Whether one of the words is in a list of words that mean the same."""
    return any(word in same for word in words)


def _recoded(one: frozenset[str], other: frozenset[str], ways: list[frozenset[str]]) -> bool:
    """Whether as many classes have other names or numbers, and no client has names of both."""
    if len(one) != len(other) or len(one) < 2 or len(ways) > 3:
        return False
    if not one & other:
        return True
    numbers = all(name.lstrip("-").isdigit() for name in one | other)
    return numbers and len(one) == 2 and not any(one | other <= way for way in ways)
