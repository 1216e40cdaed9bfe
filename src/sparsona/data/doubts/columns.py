"""Doubts about whole columns: absent ones, many values, and the target in disguise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites
from sparsona.data.doubts.numbers import codes_in
from sparsona.data.schema.columns import as_option

ROWS, VARIED, KNOWN = 10, 10, 0.5
"""Least rows of the client; at the others, least different values and least share of known values."""


@DOUBTS.named("absent")
def absent(sites: Sites) -> Iterator[Doubt]:
    """A column that a client does not have: all cells empty, or the same number in every row."""
    for name, values, known in _columns(sites):
        drop = f"pass --drop {as_option(name)}"
        if not known[sites.used].any():
            yield sites.of(list(sites.clients), name, "no row has a value", "nothing can be learnt from it", drop)
            continue
        judged = {client: mine for client, mine in sites.compared.items() if len(mine) >= ROWS}
        lacking = [client for client, mine in judged.items() if not known[mine].any()]
        others = [mine for client, mine in judged.items() if client not in lacking]
        if lacking and others and known[np.concatenate(others)].mean() >= KNOWN:
            yield sites.of(
                lacking,
                name,
                "no row has a value, as other clients' rows have",
                "the missing value tells the client, not the row",
                f"{drop}, or fill it in",
            )
        if name not in sites.rows.categories:
            yield from _stuck(sites, name, values, [client for client in judged if client not in lacking])


def _stuck(sites: Sites, name: str, values: Array, clients: Sequence[str]) -> Iterator[Doubt]:
    """A column of numbers that is constant at some clients and varies at the others."""
    taken = {client: values[sites.judged[client]] for client in clients}
    held = {client: known[~np.isnan(known)] for client, known in taken.items()}
    stuck = [client for client, known in held.items() if len(known) >= ROWS and (known == known[0]).all()]
    free = [known for client, known in held.items() if client not in stuck]
    if not stuck or len(stuck) > len(free) or any(len(np.unique(known)) < VARIED for known in free):
        return
    first = float(held[stuck[0]][0])
    if first in codes_in(values[sites.used]):  # told already
        return
    yield sites.of(
        stuck,
        name,
        f"the value is {first:g} in every row, and varies at other clients",
        "a number that stands for a missing one is learnt as a measurement",
        f"leave these cells empty where it is unknown, or pass --drop {as_option(name)}",
    )


def _columns(sites: Sites) -> Iterator[tuple[str, Array, Array]]:
    for name, values in sites.numbers():
        yield name, values, ~np.isnan(values)
    for name, names in sites.rows.categories.items():
        yield name, names, names != ""


MANY, EACH = 30, 10
"""Least number of values that counts as many, and the rows per value that suffice to learn from."""
POSTAL = frozenset(("zip", "zipcode", "postcode", "postal", "plz", "cep"))


@DOUBTS.named("many-values")
def many_values(sites: Sites) -> Iterator[Doubt]:
    """Find categories with hardly more rows than values, and zip codes that are learnt as numbers."""
    rows = len(sites.used)
    for name, values in sites.rows.categories.items():
        held = values[sites.used]
        count = len(np.unique(held[held != ""]))
        if count >= MANY and rows < EACH * count:
            yield sites.of(
                list(sites.clients),
                name,
                f"{count} categories, about {rows / count:.1g} rows each",
                f"they become {count} inputs that are learnt by heart, and their names are sent to the server",
                f"pass --drop {as_option(name)}, or write larger groups into the file (two digits of a zip code)",
            )
    for name in sites.rows.number_names:
        if POSTAL & set(re.findall("[a-z]+", name.lower())):
            yield sites.of(
                list(sites.clients),
                name,
                "a zip code is learnt as a number",
                "a larger one means nothing",
                f"pass --drop {as_option(name)}, or --categorical {as_option(name)} where each has many rows",
            )


ENOUGH, OF_A_CLASS, RECALL, CORRELATION = 40, 5, 0.99, 0.9999
"""Least rows, and least rows per class; the share of each class that one column must predict."""


@DOUBTS.named("disguised-target")
def disguised_target(sites: Sites) -> Iterator[Doubt]:
    """Find features that are the target in disguise.

    It may be a copy, a code, or a value that is recorded only after the outcome.
    """
    if sites.task == "multilabel" or len(sites.sample) < ENOUGH:
        return
    for name in sites.rows.order:
        held = sites.codes(name)[sites.sample]
        if sites.classes is not None:
            missing = (sites.rows.categories[name] == "")[sites.sample] if name in sites.rows.categories else None
            what = tells_class(held, sites.classes[sites.sample], missing)
        else:
            what = tells_number(held, sites.rows.target[sites.sample, 0])
        if what:
            yield sites.of(
                list(sites.clients),
                name,
                what,
                "the model copies it, and scores say nothing about rows whose target is unknown",
                f"pass --drop {as_option(name)} if it is not known before the target",
            )


def tells_class(held: Array, classes: Array, missing: Array | None = None) -> str:
    """Return how a column predicts the class of each row; empty if it does not."""
    _, label, counts = np.unique(classes, return_inverse=True, return_counts=True)
    often = counts >= OF_A_CLASS
    if often.sum() < 2 or counts[often].sum() < ENOUGH:
        return ""
    kept = often[label]
    held, label = held[kept], label[kept]
    lost = np.isnan(held) if missing is None else missing[kept]
    if 0 < lost.sum() < len(lost) and _recalls(lost.astype(np.int64), label, often):
        return "whether it is missing tells the class"
    values, place = np.unique(held, return_inverse=True)
    if len(values) > 1 and len(held) >= OF_A_CLASS * len(values):
        return "each of its values belongs to one class" if _recalls(place, label, often) else ""
    known = ~np.isnan(held)
    order = np.argsort(held[known], kind="stable")
    ranked = label[known][order]
    # Equal values with two labels must not look like one change of class.
    tied = held[known][order][1:] == held[known][order][:-1]
    changes = int((ranked[1:] != ranked[:-1]).sum())
    mixed = int(((ranked[1:] != ranked[:-1]) & tied).sum())
    whole = known.sum() >= RECALL * len(held) and len(np.unique(ranked)) == often.sum()
    return "its size tells the class" if whole and changes + mixed <= often.sum() - 1 + 0.002 * len(ranked) else ""


def _recalls(place: Array, label: Array, often: Array) -> bool:
    """Return whether the most frequent class of each value is right for nearly all rows of every class."""
    table = np.zeros((int(place.max()) + 1, len(often)), np.int64)
    np.add.at(table, (place, label), 1)
    right = np.zeros(len(often), np.int64)
    best = table.argmax(axis=1)
    np.add.at(right, best, table[np.arange(len(table)), best])
    return bool((right[often] >= RECALL * table.sum(axis=0)[often]).all())


def tells_number(held: Array, target: Array) -> str:
    """Return how a column predicts a numeric target; empty if it does not."""
    known = ~np.isnan(held) & ~np.isnan(target)
    x, y = held[known], target[known]
    if len(x) < ENOUGH or len(np.unique(x)) <= 10 or len(np.unique(y)) <= 10:
        return ""
    if _correlation(x, y) > CORRELATION:
        return "it is the target, but for its unit"
    ranks = (np.unique(values, return_inverse=True)[1].astype(np.float64) for values in (x, y))
    return "it grows with the target, row by row" if _correlation(*ranks) > CORRELATION else ""


def _correlation(x: Array, y: Array) -> float:
    if x.std() == 0 or y.std() == 0:
        return 0.0
    return abs(float(np.corrcoef(x, y)[0, 1]))
