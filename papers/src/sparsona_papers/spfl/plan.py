"""SPFL's runs: the rows of Table 1 and further baselines, and the studies of Tables 7 and 8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparsona_papers._command import Command
from sparsona_papers._excerpt import AS_IT_IS, excerpt
from sparsona_papers._paper import Case, Grid, Size

PARTITIONS = {"noniid": "classes:6:own", "iid": "classes:6:shared"}
CLASSES = {"digits": (4, 6, 8), "mnist": (4, 6, 8), "cifar-10": (4, 6, 8), "emnist": (24, 32, 40),
           "cifar-100": (40, 60, 80)}  # fmt: skip
"""How many classes a client has: the paper's number, and what Table 7's k1 and k3 are taken for. The paper does not say
them; its figures 4 and 5 have 4 and 6 for mnist and cifar-10, 32 and 40 for EMNIST, 40 and 60 for CIFAR-100."""
ABSENT = ("emnist", "cifar-100")
"""The paper's data sets that this machine has not. EMNIST is `balanced`, as in the authors' code."""
SETTINGS = (("mnist", "noniid"), ("cifar-10", "noniid"), ("mnist", "iid"), ("cifar-10", "iid"), ("digits", "noniid"),
            ("digits", "iid"), *((data, kind) for kind in PARTITIONS for data in ABSENT))  # fmt: skip
EXCERPT = 12_000


@dataclass(frozen=True)
class RunLength:
    """The length of a run: its rounds, a client's work per round, and the rounds between two measurements of
    similarity. A row chooses among `rates`, the usual one first, on validation samples in `tuned` rounds of the first
    `tried` seeds. `study` is the rate of the studies: the paper's, or the one that validation samples chose for SPFL.
    """

    rounds: int
    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    tuned: int
    gamma: int
    training: Mapping[str, Any]
    model: str = "spfl-cnn"
    study: float = 0.01
    tried: int = 1


SHORT: dict[str, Any] = {"batch": 32, "steps": 10}
AS_PRINTED = RunLength(100, tuple(range(1, 11)), (0.01, 0.003, 0.03), 20, 10, {"batch": 128, "epochs": 1})
LENGTHS: dict[Size, RunLength] = {
    "quick": RunLength(12, (1, 2, 3), (0.05, 0.02, 0.1), 5, 5, SHORT, study=0.1),
    "day": RunLength(50, (1, 2, 3), (0.05, 0.02, 0.1, 0.2), 10, 5, SHORT),
    "whole": AS_PRINTED,
    "paper": AS_PRINTED,
}
TUNED: dict[tuple[Size, str, str], dict[str, Any]] = {
    ("quick", "mnist", "noniid"): {"rates": (0.05, 0.02, 0.1, 0.2, 0.4)},
    ("day", "mnist", "noniid"): {"rates": (0.2, 0.4), "tuned": 25, "tried": 3},
}
"""How the rows of a table choose, where that is not as in the others of its size. In `quick` all had chosen the largest
of three. In `day` smaller rates lost in ten rounds on validation samples, in every row; with 0.4 a run may collapse
later, in one seed of several."""
ON_DIGITS: dict[str, Any] = {
    "rounds": 40, "seeds": (1, 2, 3, 4, 5), "rates": (0.05, 0.1, 0.2, 0.4), "training": {"batch": 8, "epochs": 1},
    "model": "auto", "study": 0.2,
}  # fmt: skip
DIGITS: dict[Size, RunLength] = {
    "quick": RunLength(**ON_DIGITS, tuned=15, gamma=5),
    "whole": RunLength(**ON_DIGITS, tuned=20, gamma=10),
}
"""Lengths for digits, which the paper does not have. They train in seconds, so every row has five seeds."""


@dataclass(frozen=True)
class PaperRow:
    """A row of a table: the method, its options, the paper's numbers by setting, in the order of the table's settings,
    and what is special about its schedule or its training."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[float | None, ...] = ()
    schedule: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)


def _printed(*numbers: float | None) -> tuple[float | None, ...]:
    """Table 1's numbers, in percent, in the order of the settings: the paper has no digits, and one is illegible."""
    shares = [None if number is None else round(number / 100, 4) for number in numbers]
    return (*shares[:4], None, None, *shares[4:])


PER_FEDAVG = _printed(97.19, 55.65, 98.89, 74.00, 85.32, 24.79, 91.27, 35.03)
ROWS = {
    "local": PaperRow("local"),
    "fedavg": PaperRow("fedavg", {}, _printed(96.52, 48.76, 98.46, 67.00, 84.42, 18.79, 90.41, 27.39)),
    "fedper-2": PaperRow("fedper", training={"repeats": 2}),
    "spfl": PaperRow("spfl", {}, _printed(98.33, 67.22, 98.82, 71.91, 87.49, 24.97, 89.53, 28.52)),
    "spfl-w": PaperRow("spfl-w", {}, _printed(97.22, 55.36, 98.90, 74.04, 85.25, 24.73, 90.91, 34.90)),
    "pfedme": PaperRow("pfedme", {"inner": 2}, _printed(97.18, 55.47, 98.80, 72.82, 85.30, 24.20, 91.03, 33.93)),
    "per-fedavg": PaperRow("per-fedavg", {}, PER_FEDAVG),
    "per-fedavg-code": PaperRow("per-fedavg", {"variant": "repository"}, PER_FEDAVG),
    "fedupdate": PaperRow("fedupdate", {}, _printed(97.21, 59.45, 98.46, 66.45, 85.80, 21.13, None, 26.61)),
    "fedper": PaperRow("fedper"),
    "spfl-1": PaperRow("spfl", {"steps": "one"}, _printed(97.71, 61.36, 98.35, 65.53, 87.66, 22.08, 89.94, 25.79)),
    "spfl-w-1": PaperRow("spfl-w", {"steps": "one"}, _printed(96.52, 48.96, 98.46, 67.03, 83.23, 18.87, 90.32, 27.49)),
    "spfl-mixed-head": PaperRow("spfl", {"head": "mixed"}),
    "spfl-often": PaperRow("spfl"),
    "spfl-seldom": PaperRow("spfl"),
    "spfl-eq7": PaperRow("spfl", {"paper_eq7": True}),
    "spfl-concat": PaperRow("spfl", {"cosine": "concat"}),
    "spfl-stages": PaperRow("spfl", {"cosine": "concat", "head": "mixed"}),
    "spfl-net": PaperRow("spfl", {"cosine": "net", "head": "mixed"}),
}
GAMMA = {5: {"spfl-often": 2, "spfl-seldom": 10}, 10: {"spfl-often": 5, "spfl-seldom": 20}}
"""Rounds between two measurements of rows in Table 7 that differ from the usual 5 or 10."""
DAY = ("local", "fedavg", "fedper", "fedper-2", "spfl")
"""Rows of `day` with skewed labels."""
TABLE_1 = ("local", "fedavg", "spfl-w", "spfl", "pfedme", "per-fedavg", "fedupdate", "spfl-1", "spfl-w-1")
"""The methods of Table 1, and independent training."""
ON_IID = (*TABLE_1, "spfl-often", "spfl-seldom")
"""Rows of `quick` without skewed labels."""
MOST = (*ON_IID, "fedper-2")
"""Rows of `quick` on cifar-10 with skewed labels, and of `paper` on data sets that must be downloaded."""


def rows_of(size: Size, data: str, kind: str) -> tuple[str, ...]:
    """The rows of a table that a size has, in the order of ROWS."""
    if size == "paper" or data in ABSENT:
        names: tuple[str, ...] = MOST if size == "paper" and data in ABSENT else ()
    elif size == "day":
        names = DAY if kind == "noniid" and data != "digits" else ()
    elif size == "whole":
        names = tuple(ROWS)
    elif kind == "iid":
        names = ON_IID
    else:
        names = MOST if data == "cifar-10" else tuple(ROWS)
    return tuple(name for name in ROWS if name in names)


@dataclass(frozen=True)
class Variant:
    """A row of Table 7: the index in CLASSES of a client's number of classes, the numbers of clients and local epochs,
    and whether it ends after one round.
    """

    classes: int = 1
    clients: int = 10
    epochs: int = 1
    one_round: bool = False


VARIANTS = {
    "base": Variant(),
    "few-classes": Variant(classes=0),
    "many-classes": Variant(classes=2),
    "6-clients": Variant(clients=6),
    "2-epochs": Variant(epochs=2),
    "5-epochs": Variant(epochs=5),
    "one-round": Variant(one_round=True),
}
"""Table 7, but for the similarity's rounds, which are rows of Table 1. `base` is fine-tuned at the end, as in Table 8;
`one-round` is there for figures 4 and 5, whose cosines fall while training goes on. Fewer clients have larger parts, as
Appendix B cuts every class into as many parts as there are clients."""
TABLE_7: dict[str, dict[str, tuple[float, float]]] = {
    "mnist": {"base": (98.82, 98.44), "few-classes": (98.96, 98.32), "many-classes": (98.75, 98.30),
              "6-clients": (98.70, 98.01), "2-epochs": (99.05, 98.79), "5-epochs": (99.18, 98.76)},
    "cifar-10": {"base": (75.76, 68.91), "few-classes": (82.05, 73.3), "many-classes": (68.03, 66.55),
                 "6-clients": (75.25, 66.88), "2-epochs": (77.16, 72.23), "5-epochs": (77.11, 69.83)},
    "emnist": {"base": (90.58, 88.76), "few-classes": (91.23, 90.14), "many-classes": (87.88, 87.21),
               "6-clients": (89.74, 88.65), "2-epochs": (90.71, 88.98), "5-epochs": (90.66, 88.56)},
    "cifar-100": {"base": (37.06, 30.94), "few-classes": (42.2, 31.2), "many-classes": (31.65, 30.41),
                  "6-clients": (33.41, 28.08), "2-epochs": (37.84, 30.63), "5-epochs": (36.68, 28.99)},
}  # fmt: skip
"""Printed, in percent: IID and non-IID."""
STUDIED: dict[Size, tuple[str, ...]] = {"quick": ("digits", "mnist"), "paper": ("mnist", "cifar-10", *ABSENT)}


def study_row(data: str, kind: str, variant: str) -> str:
    """The name of a row of Table 7."""
    return f"table7-{data}-{kind}-{variant}"


def cases(size: Size) -> Iterator[Case]:
    """All runs of a size."""
    yield from _table_1(size)
    yield from _table_7(size)


def partition(data: str, kind: str, place: int = 1) -> str:
    """Return the partition of a data set: each client has its own classes, or all have the same."""
    return f"classes:{CLASSES[data][place]}:{'own' if kind == 'noniid' else 'shared'}"


def _table_1(size: Size) -> Iterator[Case]:
    for number, (data, kind) in enumerate(SETTINGS):
        small = data == "digits"
        length, chosen = (DIGITS if small else LENGTHS).get(size), rows_of(size, data, kind)
        if length is None or not chosen:
            continue
        length = replace(length, **TUNED.get((size, data, kind), {}))
        for seed in length.seeds:
            for place, (name, row) in enumerate(ROWS.items()):
                if name not in chosen:
                    continue
                gamma = GAMMA[length.gamma].get(name, length.gamma)
                options = {**row.options, **({"gamma": gamma} if row.method.startswith("spfl") else {})}
                training = {**length.training, "weight_decay": 1e-4, **row.training}
                yield Case(
                    name=f"{data}-{kind}-{name}-{seed}",
                    table=f"{data}, {kind} ({partition(data, kind)})",
                    settings={
                        **_settings(size, data, length, seed),
                        "method": row.method,
                        "partition": partition(data, kind),
                        "options": options,
                        "training": training,
                        "evaluation": {"every": 0 if size == "quick" else 10, "ft": name == "fedavg"},
                    },
                    paper=row.paper[number] if row.paper else None,
                    cost=1e6 * (10 * number + seed) + place - (1e9 if small else 0),
                    row=f"{data}-{kind}-{name}",
                    grid=_grid(length, row),
                )


def _table_7(size: Size) -> Iterator[Case]:
    """Return the runs of Table 7: SPFL at one rate, with one setting changed per row."""
    for number, data in enumerate(STUDIED.get(size, ())):
        length = (DIGITS if data == "digits" else LENGTHS)[size]
        for place, kind in enumerate(("iid", "noniid")):
            for seed in length.seeds:
                for name, variant in VARIANTS.items():
                    printed = TABLE_7.get(data, {}).get(name)
                    passes = "steps" if "steps" in length.training else "epochs"
                    work = {**length.training, passes: variant.epochs * length.training[passes]}
                    common = _settings(size, data, length, seed)
                    yield Case(
                        name=f"{study_row(data, kind, name)}-{seed}",
                        table=f"Table 7, {data}, {kind}",
                        settings={
                            **common,
                            "method": "spfl",
                            "clients": variant.clients,
                            "partition": partition(data, kind, variant.classes),
                            "rounds": 1 if variant.one_round else length.rounds,
                            "options": {"gamma": length.gamma},
                            "training": {**work, "weight_decay": 1e-4, "lr": length.study},
                            "evaluation": {"every": 0 if size == "quick" else 10},
                        },
                        paper=None if printed is None else round(printed[place] / 100, 4),
                        cost=1e8 * (1 + number) + seed + variant.epochs - (1e9 if data == "digits" else 0),
                        row=study_row(data, kind, name),
                    )


def _settings(size: Size, data: str, length: RunLength, seed: int) -> dict[str, Any]:
    """Return the common settings of all runs of a data set."""
    cut = size in ("quick", "day") and data != "digits"
    return {
        "data": excerpt(data, EXCERPT) if cut else data,
        "columns": AS_IT_IS if cut else {},
        "model": length.model,
        "clients": 10,
        "rounds": length.rounds,
        "seed": seed,
        "split": {"use": "train", "test": 0.2, "validation": 0.0},
    }


def _grid(length: RunLength, row: PaperRow) -> Grid:
    """Return the rates to choose from. pFedMe's lambda suits its rate: w moves by at most 1/lambda times a gradient."""
    if row.method != "pfedme":
        return Grid("training.lr", length.rates, length.tuned, seeds=length.tried)
    pairs = tuple((rate, min(15.0, round(1 / rate, 4))) for rate in length.rates)
    return Grid("training.lr,options.lambda_", pairs, length.tuned, seeds=length.tried)


COMMAND = Command("spfl", cases)
