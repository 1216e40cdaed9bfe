"""Table 1 of "Personalized Heterogeneous Federated Learning with Gradient Similarity": SPFL and its synchronous rivals,
ten clients of six classes each, their own (non-IID) or one set for all (IID).

The paper takes 100 rounds of an epoch in batches of 128 at a learning rate of 0.01, with weight decay 1e-4 and ten
seeds. `quick` takes 10 rounds of 10 batches of 32 at 0.05, measures similarity every 5 rounds (2 for `often`, 10 for
`seldom`, which the paper's 5 and 20 against 10 stand for), and has two seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sparsona.files import write_atomically
from sparsona.method import ClientMatrices
from sparsona.methods._similar import ServerState
from sparsona.report.drawings import draw_heat_map
from sparsona.reproduce import PAPERS, Case, Check, Claim, Paper, Summary, finished, score, server_state

PARTITIONS = {"noniid": "classes:6:own", "iid": "classes:6:shared"}
SETTINGS = (("mnist", "noniid"), ("cifar-10", "noniid"), ("mnist", "iid"), ("cifar-10", "iid"))
SEEDS = {True: (1, 2), False: tuple(range(1, 11))}


@dataclass(frozen=True)
class Row:
    """A row of a table: the method, its options, the paper's numbers by setting, in the order of SETTINGS, and what is
    special about its schedule."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[float | None, ...] = (None,) * 4
    schedule: Mapping[str, Any] = field(default_factory=dict)


ROWS = {
    "local": Row("local"),
    "fedavg": Row("fedavg", {}, (0.9652, 0.4876, 0.9846, 0.6700)),
    "fedupdate": Row("fedupdate", {}, (0.9721, 0.5945, 0.9846, 0.6645)),
    "per-fedavg": Row("per-fedavg", {}, (0.9719, 0.5565, 0.9889, 0.7400)),
    "per-fedavg-code": Row("per-fedavg", {"variant": "repository"}, (0.9719, 0.5565, 0.9889, 0.7400)),
    "pfedme": Row("pfedme", {"inner": 2, "eta": 0.01}, (0.9718, 0.5547, 0.9880, 0.7282)),
    "spfl-w-1": Row("spfl-w", {"steps": "one"}, (0.9652, 0.4896, None, None)),
    "spfl-w": Row("spfl-w", {}, (0.9722, 0.5536, 0.9890, 0.7404)),
    "spfl-1": Row("spfl", {"steps": "one"}, (0.9771, 0.6136, None, None)),
    "spfl": Row("spfl", {}, (0.9833, 0.6722, 0.9882, 0.7191)),
    "spfl-mixed-head": Row("spfl", {"head": "mixed"}),
    "spfl-eq7": Row("spfl", {"paper_eq7": True}),
    "spfl-often": Row("spfl"),
    "spfl-seldom": Row("spfl"),
}
GAMMA = {True: {"spfl-often": 2, "spfl-seldom": 10}, False: {"spfl-often": 5, "spfl-seldom": 20}}
"""Rounds between two measurements, by `quick`, where a row has other than the 5 or 10 of all others: Table 7."""
FEW = ("local", "fedavg", "spfl-w", "spfl")
"""What `quick` runs where labels are not skewed."""


@PAPERS.add
def spfl(quick: bool) -> Paper:
    """All rows on mnist and cifar-10, both partitions, several seeds."""
    cases = list(_cases(quick))
    return Paper(
        title="SPFL: Personalized Heterogeneous Federated Learning with Gradient Similarity, Table 1",
        cases=cases,
        claims=CLAIMS,
        drawings={"spfl-means.md": means_of(cases), "spfl-similarity.png": _draw},
    )


def _cases(quick: bool) -> Iterator[Case]:
    training = {"batch": 32, "lr": 0.05, "steps": 10} if quick else {"batch": 128, "lr": 0.01, "epochs": 1}
    for number, (data, kind) in enumerate(SETTINGS):
        for seed in SEEDS[quick]:
            for name, row in ROWS.items():
                if quick and not _is_quick(name, number, seed):
                    continue
                gamma = GAMMA[quick].get(name, 5 if quick else 10)
                yield Case(
                    name=f"{data}-{kind}-{name}-{seed}",
                    table=f"{data}, {kind} ({PARTITIONS[kind]})",
                    settings={
                        "method": row.method,
                        "data": data,
                        "model": "spfl-cnn",
                        "clients": 10,
                        "partition": PARTITIONS[kind],
                        "rounds": 10 if quick else 100,
                        "seed": seed,
                        "options": {**row.options, **({"gamma": gamma} if row.method.startswith("spfl") else {})},
                        "training": {**training, "weight_decay": 1e-4},
                        "split": {"use": "train", "test": 0.2, "validation": 0.0},
                        "evaluation": {"every": 0 if quick else 10, "ft": name == "fedavg"},
                    },
                    paper=row.paper[number],
                    cost=1e6 * (10 * seed + number),
                )


def _is_quick(name: str, number: int, seed: int) -> bool:
    """Whether a row is run by `quick`: all of mnist non-IID, the paper's own of cifar-10 non-IID, a few IID."""
    return number == 0 or (number == 1 and (name in FEW or bool(ROWS[name].paper[1]))) or (name in FEW and seed == 1)


def means(cases: Sequence[Case], done: Mapping[str, Summary], point: str) -> dict[str, list[float]]:
    """The scores at a point by run without its seed."""
    found: dict[str, list[float]] = {}
    for case in cases:
        value = score(done[case.name], point) if case.name in done else None
        if value is not None:
            found.setdefault(case.name.rpartition("-")[0], []).append(value)
    return found


def means_of(cases: Sequence[Case]) -> Callable[[Path, Path], bool]:
    """Writes a table of means and deviations over the seeds that are finished."""

    def write(runs: Path, to: Path) -> bool:
        paper = Paper("", cases)
        done = finished(paper, runs)
        found = {point: means(cases, done, point) for point in ("pre", "post", "ft")}
        lines = ["| run | paper | pre | post | ft | seeds | simulated s |", "|---|---|---|---|---|---|---|"]
        for name in dict.fromkeys(case.name.rpartition("-")[0] for case in cases):
            case = next(c for c in cases if _is(c, name))
            cells = [deviation(found[point].get(name, [])) for point in ("pre", "post", "ft")]
            seconds = [done[c.name]["simulated_seconds"] for c in cases if c.name in done and _is(c, name)]
            if seconds:
                printed = "-" if case.paper is None else f"{100 * case.paper:.2f}"
                cells += [str(len(seconds)), f"{mean(seconds):.0f}"]
                lines.append(f"| {name} | {printed} | {' | '.join(cells)} |")
        write_atomically(to, "\n".join(lines) + "\n")
        return len(lines) > 2

    return write


def _is(case: Case, name: str) -> bool:
    return case.name.rpartition("-")[0] == name


def deviation(values: Sequence[float]) -> str:
    """Mean and standard deviation in per cent.

    >>> deviation([0.5, 0.52]), deviation([0.5]), deviation([])
    ('51.00 ± 1.41', '50.00', '-')
    """
    if not values:
        return "-"
    spread = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.2f}{spread}"


def averages(done: Mapping[str, Summary], rows: Sequence[tuple[str, str]]) -> list[float]:
    """The means of runs, each at its point, over the seeds that all of them have; nothing if there is none."""
    scores = []
    for name, point in rows:
        runs = {k.rpartition("-")[2]: s for k, s in done.items() if k.rpartition("-")[0] == name}
        scores.append({seed: score(s, point) for seed, s in runs.items()})
    shared = sorted(set.intersection(*(set(s) for s in scores)))
    return [mean(s[seed] or 0.0 for seed in shared) for s in scores] if shared else []


def above(one: str, *others: str, point: str = "pre", other_point: str = "") -> Check:
    """Whether the mean of `one` over the seeds is above that of all `others`."""

    def check(done: Mapping[str, Summary]) -> bool | None:
        found = averages(done, [(one, point), *((other, other_point or point) for other in others)])
        return all(found[0] > other for other in found[1:]) if found else None

    return check


def within(limit: float, *names: str, point: str = "pre") -> Check:
    """Whether the means of all are no further apart than `limit`."""

    def check(done: Mapping[str, Summary]) -> bool | None:
        found = averages(done, [(name, point) for name in names])
        return max(found) - min(found) <= limit if found else None

    return check


RIVALS = ("fedavg", "fedupdate", "per-fedavg", "per-fedavg-code", "pfedme", "spfl-w")
CLAIMS = [
    Claim("C1: SPFL above all others, mnist non-IID", above(*(f"mnist-noniid-{m}" for m in ("spfl", *RIVALS)))),
    Claim("C1: SPFL above all others, cifar-10 non-IID", above(*(f"cifar-10-noniid-{m}" for m in ("spfl", *RIVALS)))),
    Claim("C1: SPFL above FedAvg and SPFL-w, cifar-10 non-IID",
          above(*(f"cifar-10-noniid-{m}" for m in ("spfl", "fedavg", "spfl-w")))),
    Claim("Table 1: FedUpdate above FedAvg, mnist non-IID", above("mnist-noniid-fedupdate", "mnist-noniid-fedavg")),
    Claim("Table 1: FedUpdate above FedAvg, cifar-10 non-IID",
          above("cifar-10-noniid-fedupdate", "cifar-10-noniid-fedavg")),
    Claim("Table 1: Per-FedAvg above FedAvg, mnist non-IID", above("mnist-noniid-per-fedavg", "mnist-noniid-fedavg")),
    Claim("Table 1: Per-FedAvg as coded above FedAvg, mnist non-IID",
          above("mnist-noniid-per-fedavg-code", "mnist-noniid-fedavg")),
    Claim("Table 1: pFedMe above FedAvg, mnist non-IID", above("mnist-noniid-pfedme", "mnist-noniid-fedavg")),
    Claim("C2: two steps above one, SPFL, mnist non-IID", above("mnist-noniid-spfl", "mnist-noniid-spfl-1")),
    Claim("C2: two steps above one, SPFL-w, mnist non-IID", above("mnist-noniid-spfl-w", "mnist-noniid-spfl-w-1")),
    Claim("C2: two steps above one, SPFL, cifar-10 non-IID", above("cifar-10-noniid-spfl", "cifar-10-noniid-spfl-1")),
    Claim("C2: two steps above one, SPFL-w, cifar-10 non-IID",
          above("cifar-10-noniid-spfl-w", "cifar-10-noniid-spfl-w-1")),
    Claim("C3: SPFL above SPFL-w, mnist non-IID", above("mnist-noniid-spfl", "mnist-noniid-spfl-w")),
    Claim("C3: SPFL-w above SPFL, mnist IID", above("mnist-iid-spfl-w", "mnist-iid-spfl")),
    Claim("C3: SPFL-w above SPFL, cifar-10 IID", above("cifar-10-iid-spfl-w", "cifar-10-iid-spfl")),
    Claim("C3: SPFL above SPFL-w, cifar-10 non-IID", above("cifar-10-noniid-spfl", "cifar-10-noniid-spfl-w")),
    Claim("C4: measuring twice as often or half as often changes SPFL by less than a point, mnist non-IID",
          within(0.01, "mnist-noniid-spfl", "mnist-noniid-spfl-often", "mnist-noniid-spfl-seldom")),
    Claim("erratum 8: SPFL's own head above the mixed head, mnist non-IID",
          above("mnist-noniid-spfl", "mnist-noniid-spfl-mixed-head")),
    Claim("erratum 1: equation (7) as printed is below FedAvg, mnist non-IID",
          above("mnist-noniid-fedavg", "mnist-noniid-spfl-eq7")),
    Claim("against it: `local` above SPFL, mnist non-IID", above("mnist-noniid-local", "mnist-noniid-spfl")),
    Claim("against it: FedAvg fine-tuned (ft) above SPFL (pre), mnist non-IID",
          above("mnist-noniid-fedavg", "mnist-noniid-spfl", point="ft", other_point="pre")),
]  # fmt: skip


def _draw(runs: Path, to: Path) -> bool:
    """The similarity matrices of the first finished run of SPFL."""
    folder = next((f for f in sorted(runs.glob("*-noniid-spfl-1")) if (f / "summary.json").exists()), None)
    if folder is None:
        return False
    found = server_state(folder, ServerState).similarity
    draw_heat_map(ClientMatrices(found.clients, found.stages), to)
    return True
