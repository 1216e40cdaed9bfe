"""Table 1 of "Personalized Heterogeneous Federated Learning with Gradient Similarity": SPFL and its synchronous rivals,
ten clients of six classes each, their own (non-IID) or one set for all (IID). Digits, which the paper has not, cost
next to nothing: 40 epochs, five seeds.

The paper takes 100 rounds of an epoch in batches of 128 at a learning rate of 0.01, with weight decay 1e-4 and ten
seeds. `quick` takes 12 rounds of 10 batches of 32 on 12,000 images, measures similarity every 5 rounds (2 for `often`,
10 for `seldom`, which the paper's 5 and 20 against 10 stand for), has three seeds, and chooses the learning rate of
every row on validation samples. `day` takes 50 such rounds for SPFL and what its gain is measured by. FedPer with two
steps a batch is SPFL's control: it has its own head, its two steps, and a plain mean in place of the similarities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsona.method import ClientMatrices
from sparsona.methods._similar import ServerState
from sparsona.report.drawings import draw_heat_map
from sparsona.reproduce import PAPERS, Case, Claim, Grid, Paper, Size, server_state
from sparsona.reproduce._excerpt import AS_IT_IS, excerpt
from sparsona.reproduce._verdicts import above, never, within

PARTITIONS = {"noniid": "classes:6:own", "iid": "classes:6:shared"}
SETTINGS = (("mnist", "noniid"), ("cifar-10", "noniid"), ("mnist", "iid"), ("cifar-10", "iid"), ("digits", "noniid"),
            ("digits", "iid"))  # fmt: skip
EXCERPT = 12_000


@dataclass(frozen=True)
class RunLength:
    """How long a run is: its rounds, what a client does in one, and rounds between two measurements of similarity. A
    row chooses among `rates`, the usual one first, on validation samples in `tuned` rounds."""

    rounds: int
    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    tuned: int
    gamma: int
    training: Mapping[str, Any]
    model: str = "spfl-cnn"


SHORT: dict[str, Any] = {"batch": 32, "steps": 10}
LENGTHS: dict[Size, RunLength] = {
    "quick": RunLength(12, (1, 2, 3), (0.05, 0.02, 0.1), 5, 5, SHORT),
    "day": RunLength(50, (1, 2, 3), (0.05, 0.02, 0.1), 10, 5, SHORT),
    "whole": RunLength(100, tuple(range(1, 11)), (0.01, 0.003, 0.03), 20, 10, {"batch": 128, "epochs": 1}),
}
ON_DIGITS: dict[str, Any] = {
    "rounds": 40, "seeds": (1, 2, 3, 4, 5), "rates": (0.05, 0.1, 0.2), "training": {"batch": 8, "epochs": 1},
    "model": "auto",
}  # fmt: skip
DIGITS: dict[Size, RunLength] = {
    "quick": RunLength(**ON_DIGITS, tuned=15, gamma=5),
    "whole": RunLength(**ON_DIGITS, tuned=20, gamma=10),
}
"""The paper does not have them. They train in seconds, so that every row has five seeds."""


@dataclass(frozen=True)
class PaperRow:
    """A row of a table: the method, its options, the paper's numbers by setting, in the order of SETTINGS, and what is
    special about its schedule or its training."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[float | None, ...] = (None,) * 4
    schedule: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)


ROWS = {
    "local": PaperRow("local"),
    "fedavg": PaperRow("fedavg", {}, (0.9652, 0.4876, 0.9846, 0.6700)),
    "fedper-2": PaperRow("fedper", training={"repeats": 2}),
    "spfl": PaperRow("spfl", {}, (0.9833, 0.6722, 0.9882, 0.7191)),
    "spfl-w": PaperRow("spfl-w", {}, (0.9722, 0.5536, 0.9890, 0.7404)),
    "pfedme": PaperRow("pfedme", {"inner": 2}, (0.9718, 0.5547, 0.9880, 0.7282)),
    "per-fedavg": PaperRow("per-fedavg", {}, (0.9719, 0.5565, 0.9889, 0.7400)),
    "per-fedavg-code": PaperRow("per-fedavg", {"variant": "repository"}, (0.9719, 0.5565, 0.9889, 0.7400)),
    "fedupdate": PaperRow("fedupdate", {}, (0.9721, 0.5945, 0.9846, 0.6645)),
    "fedper": PaperRow("fedper"),
    "spfl-1": PaperRow("spfl", {"steps": "one"}, (0.9771, 0.6136, 0.9835, 0.6553)),
    "spfl-w-1": PaperRow("spfl-w", {"steps": "one"}, (0.9652, 0.4896, 0.9846, 0.6703)),
    "spfl-mixed-head": PaperRow("spfl", {"head": "mixed"}),
    "spfl-often": PaperRow("spfl"),
    "spfl-seldom": PaperRow("spfl"),
    "spfl-eq7": PaperRow("spfl", {"paper_eq7": True}),
}
GAMMA = {5: {"spfl-often": 2, "spfl-seldom": 10}, 10: {"spfl-often": 5, "spfl-seldom": 20}}
"""Rounds between two measurements where a row has other than the 5 or 10 of all others: Table 7."""
FEW = ("local", "fedavg", "spfl-w", "spfl")
"""What `quick` runs where labels are not skewed."""
DAY = ("local", "fedavg", "fedper", "fedper-2", "spfl")
"""What `day` runs, where labels are skewed."""
ON_CIFAR = ("local", "fedavg", "fedper-2", "spfl", "spfl-w", "pfedme", "per-fedavg", "fedupdate", "spfl-1", "spfl-w-1")


@PAPERS.add
def spfl(size: Size) -> Paper:
    """All rows on mnist and cifar-10, both partitions, several seeds."""
    return Paper(
        title="SPFL: Personalized Heterogeneous Federated Learning with Gradient Similarity, Table 1",
        cases=list(_cases(size)),
        claims=list(_claims()),
        drawings={"spfl-similarity.png": _draw},
    )


def _cases(size: Size) -> Iterator[Case]:
    for number, (data, kind) in enumerate(SETTINGS):
        small = data == "digits"
        length = (DIGITS if small else LENGTHS).get(size)
        if length is None:
            continue
        cut = size != "whole" and not small
        for seed in length.seeds:
            for place, (name, row) in enumerate(ROWS.items()):
                if not _is_in(size, name, number):
                    continue
                gamma = GAMMA[length.gamma].get(name, length.gamma)
                yield Case(
                    name=f"{data}-{kind}-{name}-{seed}",
                    table=f"{data}, {kind} ({PARTITIONS[kind]})",
                    settings={
                        "method": row.method,
                        "data": excerpt(data, EXCERPT) if cut else data,
                        "columns": AS_IT_IS if cut else {},
                        "model": length.model,
                        "clients": 10,
                        "partition": PARTITIONS[kind],
                        "rounds": length.rounds,
                        "seed": seed,
                        "options": {**row.options, **({"gamma": gamma} if row.method.startswith("spfl") else {})},
                        "training": {**length.training, "weight_decay": 1e-4, **row.training},
                        "split": {"use": "train", "test": 0.2, "validation": 0.0},
                        "evaluation": {"every": 0 if size == "quick" else 10, "ft": name == "fedavg"},
                    },
                    paper=row.paper[number] if number < len(row.paper) else None,
                    cost=1e6 * (10 * number + seed) + place - (1e9 if small else 0),
                    row=f"{data}-{kind}-{name}",
                    grid=_grid(length, row),
                )


def _grid(length: RunLength, row: PaperRow) -> Grid:
    """The rates. pFedMe's spring is weak enough for its rate: w moves by at most 1/lambda times a gradient."""
    if row.method != "pfedme":
        return Grid("training.lr", length.rates, length.tuned)
    pairs = tuple((rate, min(15.0, round(1 / rate, 4))) for rate in length.rates)
    return Grid("training.lr,options.lambda_", pairs, length.tuned)


def _is_in(size: Size, name: str, number: int) -> bool:
    """Whether a size has a row: `quick` all of mnist and digits non-IID, the main ones of cifar-10 non-IID, a few IID;
    `day` a few non-IID."""
    if size == "day":
        return number in (0, 1) and name in DAY
    return size == "whole" or number in (0, 4) or (number == 1 and name in ON_CIFAR) or name in FEW


RIVALS = ("fedavg", "fedupdate", "per-fedavg", "pfedme", "spfl-w")


def _at(setting: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{setting}-{name}" for name in names)


DIGITS_, MNIST, CIFAR = "digits-noniid", "mnist-noniid", "cifar-10-noniid"
NO_DATA = "EMNIST and CIFAR-100 are not on this machine"
COSTS = {"digits": "seconds", "mnist": "two CPU minutes", "cifar-10": "three CPU minutes"}
"""Of a run under `quick`."""
WHOLE = "`sparsona reproduce spfl`: about 150 CPU hours"


def _cost(setting: str) -> str:
    data = setting.removesuffix("-noniid").removesuffix("-iid")
    return f"`sparsona reproduce spfl --size quick --only '{setting}-*'`: {COSTS[data]} a run"


def _claims() -> Iterator[Claim]:
    for data in (DIGITS_, MNIST, CIFAR):
        cost = _cost(data)
        for text, one, *others in (
            ("C1: SPFL above all its rivals", "spfl", *RIVALS),
            ("control: SPFL above FedPer with two steps a batch", "spfl", "fedper-2"),
            ("Table 1: FedUpdate above FedAvg", "fedupdate", "fedavg"),
            ("Table 1: Per-FedAvg above FedAvg", "per-fedavg", "fedavg"),
            ("Table 1: pFedMe above FedAvg", "pfedme", "fedavg"),
            ("C2: two steps above one, SPFL", "spfl", "spfl-1"),
            ("C2: two steps above one, SPFL-w", "spfl-w", "spfl-w-1"),
            ("C3: SPFL above SPFL-w", "spfl", "spfl-w"),
            ("4.1: SPFL above FedAvg and independent training", "spfl", "fedavg", "local"),
            ("4.1: SPFL-w above FedAvg and independent training", "spfl-w", "fedavg", "local"),
            ("against it: `local` above SPFL", "local", "spfl"),
        ):
            yield Claim(f"{text}, {data}", above(*_at(data, one, *others)), cost)
        yield Claim(
            f"against it: FedAvg fine-tuned (ft) above SPFL (pre), {data}",
            above(*_at(data, "fedavg", "spfl"), point="ft", other_point="pre"),
            cost,
        )
    for data in (DIGITS_, MNIST):
        cost = _cost(data)
        yield Claim(
            f"Table 1: Per-FedAvg as coded above FedAvg, {data}", above(*_at(data, "per-fedavg-code", "fedavg")), cost
        )
        yield Claim(
            f"C4: measuring twice as often or half as often changes SPFL by less than a point, {data}",
            within(0.01, *_at(data, "spfl", "spfl-often", "spfl-seldom")),
            cost,
        )
        yield Claim(
            f"erratum 8: SPFL's own head above the mixed head, {data}",
            above(*_at(data, "spfl", "spfl-mixed-head")),
            cost,
        )
        yield Claim(
            f"erratum 1: equation (7) as printed is below FedAvg, {data}",
            above(*_at(data, "fedavg", "spfl-eq7")),
            cost,
        )
    for data in ("digits", "mnist", "cifar-10"):
        alike = f"{data}-iid"
        yield Claim(f"C3: SPFL-w above SPFL, {data} IID", above(*_at(alike, "spfl-w", "spfl")), _cost(alike))
        yield Claim(
            f"Table 1: SPFL-w above FedAvg, {data} IID (paper: mnist 98.90 and 98.46, cifar-10 74.04 and 67.00)",
            above(*_at(alike, "spfl-w", "fedavg")),
            _cost(alike),
        )
        yield Claim(
            f"4.1: SPFL above FedAvg and independent training, {data} IID",
            above(*_at(alike, "spfl", "fedavg", "local")),
            _cost(alike),
        )
        yield Claim(
            f"Table 6: federated above independent training on IID, {data}",
            above(*_at(alike, "fedavg", "local")),
            _cost(alike),
        )
        yield Claim(
            f"Table 6: independent above federated training on non-IID, {data}",
            above(*_at(f"{data}-noniid", "local", "fedavg")),
            _cost(f"{data}-noniid"),
        )
    yield Claim(
        f"C4: measuring twice as often or half as often changes SPFL by less than a point, {CIFAR}",
        within(0.01, *_at(CIFAR, "spfl", "spfl-often", "spfl-seldom")),
        WHOLE,
    )
    for data in ("mnist", "cifar-10"):
        for name, paper in (("per-fedavg", "98.89 and 74.00"), ("pfedme", "98.80 and 72.82")):
            yield Claim(
                f"Table 1: {name} above FedAvg, {data} IID (paper: mnist and cifar-10 {paper}, FedAvg 98.46 and 67.00)",
                above(*_at(f"{data}-iid", name, "fedavg")),
                WHOLE,
            )
        yield Claim(
            f"C2: two steps above one, SPFL, {data} IID (paper: mnist 98.82 and 98.35, cifar-10 71.91 and 65.53)",
            above(*_at(f"{data}-iid", "spfl", "spfl-1")),
            WHOLE,
        )
    for text, hours in (
        ("Table 7, cifar-10: fewer classes a client, more clients and two epochs are better (68.91 to 72.23)", 60),
        ("Table 8, cifar-10: fine-tuning after training adds at most half a point (68.91; 69.14 to 69.41), a rate of"
         " 0.01 hurts (65.66)", 20),
        ("Figures 4 and 5: gradients of IID clients have cosines near 1, and shallow layers are more alike than deep"
         " ones", 1),
    ):  # fmt: skip
        yield Claim(text, never("no case of ours has these settings"), f"about {hours} CPU hours")
    yield Claim(
        "Table 6 on EMNIST and CIFAR-100, non-IID: independent above federated (the paper's own numbers contradict its"
        " text: 84.10 below 84.24, 18.25 below 20.13)",
        never(NO_DATA),
        "about 20 CPU hours, once `sparsona data get emnist` and `cifar-100` have run",
    )
    yield Claim(
        "Table 1 on EMNIST: SPFL (2 steps) 87.49, SPFL (1) 87.66, the others at most 85.80",
        never(NO_DATA),
        "about 20 CPU hours with ten seeds, once `sparsona data get emnist` has run",
    )
    yield Claim(
        "Table 1 on CIFAR-100: SPFL 24.97 best, Per-FedAvg 24.79",
        never(NO_DATA),
        "about 30 CPU hours with ten seeds, once `sparsona data get cifar-100` has run",
    )


def _draw(runs: Path, to: Path) -> bool:
    """The similarity matrices of the first finished run of SPFL."""
    folder = next((f for f in sorted(runs.glob("*-noniid-spfl-1")) if (f / "summary.json").exists()), None)
    if folder is None:
        return False
    found = server_state(folder, ServerState).similarity
    draw_heat_map(ClientMatrices(found.clients, found.stages), to)
    return True
