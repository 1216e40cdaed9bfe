"""PLGA's runs: the rows of Table 2, variations of section 4.2's settings, and the race on phones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsona.data.dataset import Array, Dataset
from sparsona_papers._command import Command
from sparsona_papers._excerpt import AS_IT_IS, derived, excerpt
from sparsona_papers._paper import Case, Grid, Size
from sparsona_papers.spfl.plan import EXCERPT, PARTITIONS, PaperRow, partition

ORDERS = {"stored": "stored", "shuffled": "shuffled", "raw": "stored"}
"""Orders of a client's samples: class by class, shuffled, or class by class as pixels of 0 to 255."""
ROWS = {
    "fedavg-stale": PaperRow("fedavg-stale", {}, (None, 0.9724, 0.4209, 0.5810, 0.1853)),
    "lga": PaperRow("lga", {}, (None, 0.9748, 0.4406, 0.6202, 0.1941)),
    "plga": PaperRow("plga", {}, (None, 0.9783, 0.4611, 0.6818, 0.2073)),
    "fedavg-drop": PaperRow("fedavg-drop", {}, (None, 0.9731, 0.4236, 0.6105, 0.1938), {"straggling": "absent"}),
    "per-fedavg": PaperRow("per-fedavg", {"variant": "repository"}, (None, 0.9727, 0.4179, 0.5555, 0.1812)),
    "fedasync": PaperRow("fedasync", {}, (None, 0.9718, 0.4359, 0.6109, 0.1863)),
    "local": PaperRow("local"),
    "fedavg-drop-all": PaperRow("fedavg-drop"),
    "fedasync-code": PaperRow("fedasync", {"variant": "repository"}, (None, 0.9718, 0.4359, 0.6109, 0.1863)),
    "lga-eq10": PaperRow("lga", {"eq": 10}),
    "plga-eq10": PaperRow("plga", {"eq": 10}),
    "plga-stages": PaperRow("plga", {"per": "stages"}),
    "plga-net": PaperRow("plga", {"per": "net"}),
}
"""The paper's numbers are of its client accuracy, in the order of LENGTHS."""
AT_CLIENT = "-client"
"""Ending of the names of rows whose rate is chosen at the paper's client point. PLGA's `pre` is such a point: the
mixture that a client uses. The other methods have two rows: one for what their clients hold, one for the server's
model. Where both choose the same rate they are one run.
"""
TWICE = ("fedavg-stale", "lga", "fedavg-drop", "per-fedavg", "fedasync")
ROWS |= {f"{name}{AT_CLIENT}": ROWS[name] for name in TWICE}
MAIN = (*TWICE, *(f"{name}{AT_CLIENT}" for name in TWICE), "plga", "local")
"""Rows of every size, all rows of `day`, and the rows on raw pixels."""
MORE = (*MAIN, "plga-eq10", "plga-stages", "plga-net")
"""Rows of `quick` on mnist, and of `paper`."""
AS_PRINTED: dict[str, Any] = {"batch": 64, "steps": 20, "rounds": 800, "tuned": 266, "rates": (0.001, 0.003, 0.01)}
LENGTHS: dict[str, dict[Size, dict[str, Any]]] = {
    "digits": {
        q: {"batch": 8, "steps": 5, "rounds": 60, "tuned": 20, "rates": (0.05, 0.1, 0.2, 0.4), "seeds": 5}
        for q in ("quick", "whole")
    },
    "mnist": {
        "quick": {"batch": 32, "steps": 8, "rounds": 60, "tuned": 20, "rates": (0.05, 0.02, 0.1), "seeds": 3},
        "day": {"batch": 32, "steps": 8, "rounds": 240, "tuned": 40, "rates": (0.05, 0.02, 0.1), "seeds": 3},
        "whole": {**AS_PRINTED, "seeds": 3},
    },
    "cifar-10": {"whole": {**AS_PRINTED, "seeds": 3}},
    "emnist": {"paper": {**AS_PRINTED, "seeds": 10}},
    "cifar-100": {"paper": {**AS_PRINTED, "seeds": 10}},
}
"""Rounds and their length, rounds of a trial, and the number of seeds, by size."""
RAW_RATES = (0.001, 0.0003, 0.0001, 0.003)
"""Learning rates for raw pixels, the paper's first: pixels are a hundred times as large as normalised ones."""


@dataclass(frozen=True)
class FixedSettings:
    """The settings that section 4.2 fixes: B, beta, E and T."""

    batch: int = 64
    rate: float = 0.001
    steps: int = 20
    rounds: int = 800


VARIED = {
    "base": FixedSettings(),
    "batch-32": FixedSettings(batch=32),
    "batch-128": FixedSettings(batch=128),
    "rate-0.0003": FixedSettings(rate=0.0003),
    "rate-0.003": FixedSettings(rate=0.003),
    "steps-10": FixedSettings(steps=10),
    "steps-40": FixedSettings(steps=40),
    "rounds-400": FixedSettings(rounds=400),
    "rounds-1600": FixedSettings(rounds=1600),
}
"""Each of them halved and doubled, the rate by three."""
WINDOW = 1.5
"""Seconds between two aggregations of the asynchronous runs."""
ON_PHONES: dict[str, tuple[str, dict[str, Any]]] = {
    "local": ("local", {}),
    "fedavg": ("fedavg", {}),
    "spfl": ("spfl", {}),
    "fedavg-deadline": ("fedavg", {"deadline": 3.0}),
    "fedavg-stale": ("fedavg-stale", {"window": WINDOW}),
    "fedasync": ("fedasync", {"window": WINDOW}),
    "plga": ("plga", {"window": WINDOW}),
}
SPLIT = {"use": "train", "test": 0.2, "validation": 0.0}


def orders_of(data: str) -> tuple[str, ...]:
    """The orders in which a data set is read: raw pixels are read of digits only, and where 4.2's settings vary."""
    return tuple(ORDERS)[: 3 if data == "digits" else 2]


def rows_of(size: Size, data: str, order: str) -> tuple[str, ...]:
    """The rows of a table that a size has."""
    if order == "raw":
        return MAIN if size == "quick" else ()
    if size == "whole" or data == "digits":
        return tuple(ROWS)
    return MAIN if size == "day" else MORE


def raw(data: str) -> str:
    """A data set's images as they are in its files, 0 to 255, as a data set of its own."""

    def pixels(whole: Dataset) -> Mapping[str, Array]:
        used = len(whole) - whole.official_test
        return {"x": whole.inputs[:used].astype(np.float32), "y": whole.targets[:used]}

    return derived(f"{data}-raw", data, pixels)


def cases(size: Size) -> Iterator[Case]:
    """All runs of a size."""
    yield from _table_2(size)
    if size == "paper":
        yield from _varied()
    if size in ("quick", "whole"):
        yield from _phones(size == "quick")


def _table_2(size: Size) -> Iterator[Case]:
    for nth, data in enumerate(LENGTHS):
        length = LENGTHS[data].get(size)
        if length is None:
            continue
        for order in orders_of(data):
            chosen = rows_of(size, data, order)
            rates = RAW_RATES if order == "raw" else length["rates"]
            for seed in range(1, 1 + length["seeds"]):
                for place, (name, row) in enumerate(ROWS.items()):
                    if name not in chosen:
                        continue
                    yield Case(
                        name=f"{data}-{order}-{name}-{seed}",
                        table=f"{data}, {order} order, five stragglers",
                        settings={
                            **_read(size, data, order),
                            "method": row.method,
                            "clients": 10,
                            "partition": partition(data, "noniid"),
                            "rounds": length["rounds"],
                            "seed": seed,
                            "options": dict(row.options),
                            "training": {
                                "batch": length["batch"],
                                "steps": length["steps"],
                                "order": ORDERS[order],
                            },
                            "schedule": {"stragglers": 5, **row.schedule},
                            "split": SPLIT,
                            "evaluation": {"every": 1, "post": "participants"},
                        },
                        cost=1e6 * (10 * nth + seed) + 100 * list(ORDERS).index(order) + place,
                        row=f"{data}-{order}-{name}",
                        grid=Grid("training.lr", rates, length["tuned"], _point(name)),
                    )


def _point(name: str) -> str:
    """Return the evaluation point at which a row's rate is chosen."""
    return "client" if name.endswith(AT_CLIENT) else "pre"


def _read(size: Size, data: str, order: str) -> Mapping[str, Any]:
    """Return the data set of a case, and the net for it."""
    if order == "raw":
        return {"data": raw(data), "columns": AS_IT_IS, "model": "mlp" if data == "digits" else "spfl-cnn"}
    cut = size in ("quick", "day") and data != "digits"
    return {
        "data": excerpt(data, EXCERPT) if cut else data,
        "columns": AS_IT_IS if cut else {},
        "model": "auto" if data == "digits" else "spfl-cnn",
    }


def _varied() -> Iterator[Case]:
    """PLGA on mnist as the authors read it, class by class and as raw pixels, with one setting of 4.2 changed."""
    for seed in range(1, 11):
        for place, (name, varied) in enumerate(VARIED.items()):
            yield Case(
                name=f"vary-{name}-{seed}",
                table="B, beta, E and T of 4.2 varied: PLGA, mnist, raw order, five stragglers",
                settings={
                    **_read("paper", "mnist", "raw"),
                    "method": "plga",
                    "clients": 10,
                    "partition": partition("mnist", "noniid"),
                    "rounds": varied.rounds,
                    "seed": seed,
                    "options": {},
                    "training": {"batch": varied.batch, "steps": varied.steps, "lr": varied.rate, "order": "stored"},
                    "schedule": {"stragglers": 5},
                    "split": SPLIT,
                    "evaluation": {"every": 1, "post": "participants"},
                },
                cost=1e7 + 100 * seed + place,
                row=f"vary-{name}",
            )


def _phones(short: bool) -> Iterator[Case]:
    """Methods at equal simulated seconds."""
    for name, (method, schedule) in ON_PHONES.items():
        rounds = 30 if "window" in schedule else 10
        yield Case(
            name=f"phones-{name}-1",
            table="mnist, non-IID, on phone-4g",
            settings={
                "method": method,
                "data": excerpt("mnist", EXCERPT) if short else "mnist",
                "columns": AS_IT_IS if short else {},
                "model": "spfl-cnn",
                "clients": 10,
                "partition": PARTITIONS["noniid"],
                "rounds": rounds if short else 10 * rounds,
                "seed": 1,
                "options": {},
                "training": {"batch": 32, "lr": 0.05, "steps": 10},
                "schedule": {"devices": "phone-4g", **schedule},
                "split": SPLIT,
                "evaluation": {"every": 6 if "window" in schedule else 2, "post": "participants"},
            },
            cost=1e8,
            row=f"phones-{name}",
        )


COMMAND = Command("plga", cases)
