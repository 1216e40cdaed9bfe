"""Table 2 of "Personalized Heterogeneous Federated Learning with Gradient Similarity": LGA and PLGA with five of ten
clients late, by one to five rounds; and, which the paper has not, methods at equal simulated seconds on phones.

The paper takes 800 rounds of 20 batches of 64 at a learning rate of 0.001. `quick` takes 16 rounds of 10 batches of 32
at 0.05 and two seeds. Its "client" accuracy is `post` for methods with one model and `pre`, the mixture, for PLGA; its
"server" accuracy is `pre` of LGA and FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparsona.report import curves
from sparsona.reproduce import PAPERS, Case, Claim, Paper, finished
from sparsona.reproduce.spfl import PARTITIONS, SEEDS, Row, above, means_of

DATA = ("mnist", "cifar-10")
ROWS = {
    "local": Row("local"),
    "fedavg-stale": Row("fedavg-stale", {}, (0.9724, 0.4209)),
    "fedavg-drop": Row("fedavg-drop", {}, (0.9731, 0.4236)),
    "per-fedavg": Row("per-fedavg", {"variant": "repository", "beta": 0.001}, (0.9727, 0.4179)),
    "fedasync": Row("fedasync", {}, (0.9718, 0.4359)),
    "fedasync-code": Row("fedasync", {"variant": "repository"}, (0.9718, 0.4359)),
    "lga": Row("lga", {}, (0.9748, 0.4406)),
    "lga-eq10": Row("lga", {"eq": 10}),
    "plga": Row("plga", {}, (0.9783, 0.4611)),
}
FEW = ("fedavg-stale", "lga", "plga")
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


@PAPERS.add
def plga(quick: bool) -> Paper:
    """All rows on mnist and cifar-10 with five stragglers, and the race on phones."""
    cases = list(_cases(quick))
    return Paper(
        title="PLGA: Personalized Heterogeneous Federated Learning with Gradient Similarity, Table 2",
        cases=cases,
        claims=CLAIMS,
        drawings={"plga-means.md": means_of(cases), "spfl-seconds.png": _draw},
    )


def _cases(quick: bool) -> Iterator[Case]:
    training = {"batch": 32, "lr": 0.05, "steps": 10} if quick else {"batch": 64, "lr": 0.001, "steps": 20}
    shared: dict[str, Any] = {
        "model": "spfl-cnn",
        "clients": 10,
        "partition": PARTITIONS["noniid"],
        "training": training,
        "split": {"use": "train", "test": 0.2, "validation": 0.0},
    }
    for number, data in enumerate(DATA):
        for seed in SEEDS[quick]:
            for name, row in ROWS.items():
                if quick and number and (name not in FEW or seed > 1):
                    continue
                yield Case(
                    name=f"{data}-{name}-{seed}",
                    table=f"{data}, five stragglers",
                    settings={
                        **shared,
                        "method": row.method,
                        "data": data,
                        "rounds": 16 if quick else 800,
                        "seed": seed,
                        "options": dict(row.options),
                        "schedule": {"stragglers": 5},
                        "evaluation": {"every": 0 if quick else 50},
                    },
                    paper=row.paper[number],
                    cost=1e6 * (10 * seed + number),
                )
    for seed in SEEDS[quick][: 1 if quick else None]:
        for name, (method, schedule) in ON_PHONES.items():
            rounds = 30 if "window" in schedule else 10
            yield Case(
                name=f"phones-{name}-{seed}",
                table="mnist, non-IID, on phone-4g",
                settings={
                    **shared,
                    "method": method,
                    "data": "mnist",
                    "rounds": rounds if quick else 10 * rounds,
                    "seed": seed,
                    "options": {},
                    "schedule": {"devices": "phone-4g", **schedule},
                    "evaluation": {"every": 6 if "window" in schedule else 2, "post": "participants"},
                },
                cost=1e6 * (10 * seed + 5),
            )  # fmt: skip


CLAIMS = [
    Claim("C5: PLGA (`pre`, its mixture) above LGA (`post`), mnist",
          above("mnist-plga", "mnist-lga", other_point="post")),
    Claim("PLGA above LGA, both at `pre`, mnist", above("mnist-plga", "mnist-lga")),
    Claim("PLGA above LGA, both at `post`, mnist", above("mnist-plga", "mnist-lga", point="post")),
    Claim("C5: LGA above the other methods at `post`, mnist",
          above(*(f"mnist-{m}" for m in ("lga", "fedavg-stale", "fedavg-drop", "per-fedavg", "fedasync")),
                point="post")),
    Claim("C6: LGA's server model above stale averaging (`pre`), mnist", above("mnist-lga", "mnist-fedavg-stale")),
    Claim("equation (11) above (10) at `pre`, mnist", above("mnist-lga", "mnist-lga-eq10")),
    Claim("against it: `local` above PLGA (`pre`), mnist", above("mnist-local", "mnist-plga")),
]  # fmt: skip


def _draw(runs: Path, to: Path) -> bool:
    """Accuracy over simulated seconds, and over bytes."""
    done = [name for name in finished(plga(True), runs) if name.startswith("phones-")]
    found = {name.removeprefix("phones-").rpartition("-")[0]: curves.marks(runs / name, "pre") for name in done}
    if done:
        curves.draw(found, to, "pre", ("seconds", "bytes"), "test accuracy")
    return bool(done)
