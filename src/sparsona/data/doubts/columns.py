"""Doubts about columns and rows: absent ones, many values, the target in disguise, copies, one person twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.data.doubts import DOUBTS, Doubt, Sites, mixed
from sparsona.data.doubts.numbers import codes_in
from sparsona.data.schema.columns import as_option
from sparsona.data.schema.roles import names_somebody

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


LEAST_COPIES, SHARE_COPIES, CHANCE = 3, 0.01, 10
"""Least rows and least share of rows for a warning about copies, and the least ratio to the number expected by chance.
Short rows of whole numbers are often equal without being copies.
"""


@DOUBTS.named("copies")
def copies(sites: Sites) -> Iterator[Doubt]:
    """Rows that are there twice, at one client or at two; and equal rows with different classes."""
    used, keys = sites.used, sites.keys
    label = _labels(sites)
    whole = mixed(keys, label)
    by_chance = len(used) * (len(used) - 1) / 2 * sites.alike
    site = sites.site[used] if sites.natural else np.zeros(len(used), np.int64)
    within, across = twins(whole[used], site)
    enough = max(LEAST_COPIES, SHARE_COPIES * len(used), CHANCE * by_chance)
    if len(within) >= enough:
        tested = _tested(sites, whole)
        why = f"{tested} test rows are training rows, too" if tested else "they count twice"
        fix = "remove them, or pass --split group:COLUMN with a column that names the patient or the visit"
        yield sites.at(used[within], "", "copies of other rows of the file", why, fix)
    if len(across) >= max(LEAST_COPIES, CHANCE * by_chance):
        tested = _tested(sites, whole)
        why = "one client trains on rows that another is tested on" if tested else "they count twice"
        yield sites.at(used[across], "", "two clients have these rows", why, "remove one of both")
    if sites.classes is not None:
        torn = contradicting(keys[used], label[used])
        if len(torn) >= max(LEAST_COPIES, SHARE_COPIES * len(used), CHANCE * by_chance):
            yield sites.at(
                used[torn],
                sites.target,
                "equal rows with different classes",
                "no model can be right for both",
                "correct the classes, or add the column that tells these rows apart",
            )


def _labels(sites: Sites) -> Array:
    if sites.classes is not None:
        return np.unique(sites.classes, return_inverse=True)[1].astype(np.float64)
    return np.asarray(sites.rows.target[:, 0], np.float64)


def twins(keys: Array, site: Indices) -> tuple[Indices, Indices]:
    """Places of rows that repeat an earlier one of their site, and of rows that another site has, too."""
    _, row = np.unique(keys, return_inverse=True)
    pairs = row * (int(site.max()) + 1) + site
    _, first = np.unique(pairs, return_index=True)
    repeated = np.setdiff1d(np.arange(len(keys)), first)
    sites_of = np.bincount(row[first], minlength=int(row.max()) + 1)
    return repeated, np.flatnonzero(sites_of[row] > 1)


def contradicting(keys: Array, label: Array) -> Indices:
    """Places of rows whose features another row has with another label."""
    _, row = np.unique(keys, return_inverse=True)
    low, high = np.full(int(row.max()) + 1, np.inf), np.full(int(row.max()) + 1, -np.inf)
    np.minimum.at(low, row, label)
    np.maximum.at(high, row, label)
    return np.flatnonzero(low[row] < high[row])


def _tested(sites: Sites, whole: Array) -> int:
    """How many test rows are among the training rows of any client."""
    train = np.concatenate([split.train for split in sites.splits.values()])
    test = np.concatenate([split.test for split in sites.splits.values()])
    return int(np.isin(whole[test], whole[train]).sum())


GROUPS, FEW_ROWS, MANY_ROWS = 10, 1.1, 100
"""Least persons, and the range of rows per person for a column that names persons."""


@DOUBTS.named("same-person")
def same_person(sites: Sites) -> Iterator[Doubt]:
    """Rows of one person, session or device on both sides of the split."""
    if sites.by != "random":
        return
    inside = [name for name in sites.rows.order if names_somebody(name)]
    columns: dict[str, Array] = {name: sites.codes(name) for name in inside} | dict(sites.rows.aside)
    for name, values in columns.items():
        known = values[sites.used]
        known = known[known != ""] if known.dtype.kind == "U" else known[~np.isnan(known)]
        persons = len(np.unique(known))
        if persons < GROUPS or not FEW_ROWS * persons <= len(known) <= MANY_ROWS * persons:
            continue
        shared = [s.test[np.isin(values[s.test], values[s.train])] for s in sites.splits.values()]
        rows = np.concatenate(shared)
        if len(rows):
            yield sites.at(
                rows,
                name,
                f"these test rows have the {name} of a training row ({persons} of them in {len(known)} rows)",
                "the model is tested on persons that it knows, so scores are too good for new ones",
                f"pass --split {as_option('group:' + name)}",
            )
