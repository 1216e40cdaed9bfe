"""What is run for pFedGate: the rows of its tables, and how each is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparsona.reproduce import Case, Grid, Size
from sparsona.reproduce._excerpt import AS_IT_IS, excerpt

TABLE_1: dict[str, tuple[tuple[float, float | None], ...]] = {
    # on EMNIST and on cifar-10: mean, weighted by the clients' sizes, and bottom decile; FedMask's on cifar-10 is of
    # table 13, for table 1 repeats FedEM's cell, and Per-FedAvg's of table 6
    "local": ((0.7191, 0.6428), (0.6191, 0.5371)),
    "fedavg": ((0.8254, 0.7507), (0.6833, 0.6022)),
    "fedavg-ft": ((0.8319, 0.7683), (0.6991, 0.6155)),
    "fedem": ((0.8341, 0.7659), (0.7243, 0.6288)),
    "pfedme": ((0.8329, 0.7648), (0.7029, 0.6213)),
    "lg-fedavg": ((0.8325, 0.7614), (0.6954, 0.6186)),
    "ditto": ((0.8275, 0.7812), (0.7314, 0.6259)),
    "fedrep": ((0.8242, 0.7771), (0.7277, 0.6344)),
    "fedmask": ((0.8195, 0.7726), (0.7054, None)),
    "heterofl": ((0.8564, 0.7776), (0.7097, 0.6364)),
    "pfedgate-1": ((0.8711, 0.8143), (0.7518, 0.6667)),
    "pfedgate-0.5": ((0.8728, 0.8115), (0.7407, 0.6421)),
    "pfedgate-0.3": ((0.8709, 0.8252), (0.7365, 0.6439)),
}
ON_CIFAR = {"per-fedavg": (0.7035, 0.6096)}
"""Printed for cifar-10 only."""
BASELINES: dict[str, dict[str, Any]] = {
    "local": {},
    "fedavg": {},
    "fedrep": {},
    "fedper": {},
    "heterofl": {},
    "heterofl-all-labels": {"test_labels": "all"},
    "ditto": {},
    "per-fedavg": {},
    "pfedme": {},
    "fedmask": {},
    "pfedme-fedem": {"variant": "fedem", "lambda_": 1.0},
    "lg-fedavg": {},
    "fedem": {},
    "fedmd": {},
}
"""The rows beside pFedGate, with their options. fedavg at `ft` is FedAvg-FT."""
RARE = ("pfedme-fedem", "lg-fedavg", "fedem", "fedmd")
"""Left to the whole command."""
PLAIN = ("per-fedavg", "pfedme")
"""These refuse momentum. Their rates are ten times as high instead: as much as a momentum of 0.9 makes of it."""
PUBLIC = {"fashion-mnist": "mnist", "cifar-10": "cifar-100"}
"""What FedMD's clients know in common."""
MODELS = {"fashion-mnist": "leaf-cnn", "cifar-10": "lenet-cifar"}
RATES = (0.1, 0.03, 0.01)
"""The rates with a momentum of 0.9 among which validation images choose, the paper's for EMNIST first."""
GATE_RATES = {
    # of the gate, by density: the paper's table 7
    "fashion-mnist": {1.0: 0.1, 0.5: 0.1, 0.3: 0.5, 0.1: 0.5},
    "cifar-10": {1.0: 0.05, 0.5: 1.5, 0.3: 1.5, 0.1: 1.5},
}


@dataclass(frozen=True)
class Scale:
    """How much there is of everything: images (0: all), clients, rounds, samples in a batch, rounds in which a rate is
    chosen, rounds between evaluations (0: the last only), and where the gate starts. `model` replaces the paper's; the
    gate then learns at 0.1 whatever its density."""

    images: int
    clients: int
    rounds: int
    batch: int
    tuned: int
    every: int
    start: float
    model: str = ""


SCALES: dict[Size, Scale] = {
    "quick": Scale(2_000, 10, 60, 40, 20, 0, 3.0, "lenet5"),
    "day": Scale(10_000, 20, 100, 40, 20, 20, 3.0, "lenet5"),
    "whole": Scale(0, 100, 400, 128, 50, 50, 0.0),
}
"""About 200, 800 and 1,600 steps a client. `quick` takes too few for the paper's start of the gate, which is a row of
its own there and in `day`. Steps decide: four local epochs in place of one are worth nine points in `quick`."""
DAY = ("local", "fedavg", "fedrep", "ditto", "heterofl", "pfedgate-1", "pfedgate-0.5", "pfedgate-0.3",
       "pfedgate-0.5-closed", "pfedgate-0.5-client-wise", "pfedgate-0.5-20%", "fedavg-20%", "pfedgate-mixed",
       "pfedgate-mixed-whole-output", "pfedgate-0.5-new-5", "fedavg-new")  # fmt: skip
"""The rows of `day`."""
SEEDS = (1, 2, 3)
SOME: dict[str, Any] = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
"""The authors' code as it comes, at density 0.5, but for where the gate starts. In these nets the output layer fits
anyway at 0.5 and 0.3, so that `whole_output` changes nothing."""
FIRST_BLOCKS: dict[str, Any] = {**SOME, "whole_output": False}
"""The paper's rule, for settings in which it matters: of the output layer only the first block is sure to be kept."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "no-pre-norm": {"pre_norm": False},
    "no-post-norm": {"post_norm": False},
    "no-sigmoid": {"sigmoid": False},
    "client-wise": {"gate_of": "client"},
}
PRINTED = {"": 87.28, "no-pre-norm": 86.25, "no-post-norm": 87.14, "no-sigmoid": 83.55, "client-wise": 84.83}
"""Table 4, EMNIST at density 0.5."""


@dataclass(frozen=True)
class TableRow:
    """One line of a table: what it is called, the method with its options, and what else is different.

    A `study` has the first rate of the grid and, unless clients join or are sampled in it, one seed, but in the whole.
    A `rare` row is not in `quick`, one that is `only_short` not in the whole, and has one seed in `day`.
    """

    name: str
    method: str
    options: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    study: bool = False
    rare: bool = False
    only_short: bool = False


def printed(data: str, row: str) -> tuple[float | None, float | None]:
    """The paper's mean, weighted by the clients' sizes, and its bottom decile; for Fashion-MNIST EMNIST's.

    >>> printed("fashion-mnist", "fedavg"), printed("fashion-mnist", "fedmd")
    ((0.8254, 0.7507), (None, None))
    """
    if data == "cifar-10" and row in ON_CIFAR:
        return ON_CIFAR[row]
    return TABLE_1[row][list(MODELS).index(data)] if row in TABLE_1 else (None, None)


def cases(size: Size) -> Iterator[Case]:
    """All runs, at a laptop's scale, a day's or whole."""
    if size == "quick":
        yield from _leaf()
    for number, data in enumerate(MODELS if size == "whole" else ("fashion-mnist",)):
        for place, row in enumerate(rows(size)):
            few = row.study and not row.more.keys() & {"new_clients", "schedule"}
            one = size != "whole" and (few or (size == "day" and row.only_short))
            for seed in SEEDS[: 1 if one else None]:
                name = f"{data}-{row.name}"
                cost = 1e4 * number + 1e3 * seed + place + (500 if row.study else 0)
                settings, grid = _settings(size, data, row, seed), _grid(size, row)
                table = f"{data}, {settings['model']}"
                yield Case(f"{name}-{seed}", table, settings, printed(data, row.name)[0], cost, name, grid)


def rows(size: Size) -> Iterator[TableRow]:
    """The rows of a size."""
    for row in _rows():
        if row.name in DAY if size == "day" else not (row.rare if size == "quick" else row.only_short):
            yield row


def _leaf() -> Iterator[Case]:
    """The paper's net, rates and steps on few clients: does its gate leave where it starts?

    `relu` cuts the outputs at zero, as the authors' net does: the run to be compared with that of the authors' code.
    """
    variants: dict[str, dict[str, Any]] = {
        "0.5-start-0": {},
        "0.5-start-0-relu": {"logit_relu": True},
        "0.5-start-3": {"gate_start": 3.0},
        "1-start-0": {"density": 1.0},
        "1-start-3": {"density": 1.0, "gate_start": 3.0},
    }
    for place, (variant, options) in enumerate(variants.items()):
        row = TableRow("", "pfedgate", {**SOME, "gate_start": 0.0, **options}, study=True)
        settings = _settings("quick", "fashion-mnist", row, 1) | {
            "data": excerpt("fashion-mnist", 1000), "model": "leaf-cnn", "clients": 4, "rounds": 80, "packing": "plain",
        }  # fmt: skip
        name, table = f"leaf-{variant}", "fashion-mnist, leaf-cnn, 4 clients, 80 rounds"
        yield Case(f"{name}-1", table, settings, cost=place, row=name)


def _rows() -> Iterator[TableRow]:
    for name in ("local", "fedavg"):
        yield TableRow(name, name, {})
    for density in (0.5, 1.0, 0.3):
        yield TableRow(f"pfedgate-{density:g}", "pfedgate", {**SOME, "density": density})
    yield TableRow("pfedgate-0.5-open", "pfedgate", {**SOME, "gate_start": 3.0}, rare=True)
    yield TableRow("pfedgate-0.5-closed", "pfedgate", {**SOME, "gate_start": 0.0}, only_short=True)
    for name, options in BASELINES.items():
        if name not in ("local", "fedavg"):
            method = name.removesuffix("-fedem").removesuffix("-all-labels")
            yield TableRow(name, method, options, rare=name in RARE)
    for name, options in ABLATIONS.items():
        yield TableRow(f"pfedgate-0.5-{name}", "pfedgate", {**SOME, **options}, study=True)
    new = {"new_clients": 0.2}
    yield TableRow("fedavg-new", "fedavg", {}, new, study=True)
    for epochs in (1, 5, 10):
        options = {**SOME, "new_epochs": epochs}
        yield TableRow(f"pfedgate-0.5-new-{epochs}", "pfedgate", options, new, study=True)
    mixed = {"density": (0.5, 0.1), "split": "paper"}
    yield TableRow("pfedgate-mixed", "pfedgate", {**FIRST_BLOCKS, **mixed}, study=True)
    yield TableRow("pfedgate-mixed-whole-output", "pfedgate", {**SOME, **mixed}, study=True)
    yield TableRow("pfedgate-0.5-channels", "pfedgate", {**SOME, "split": "channel"}, study=True)
    yield TableRow("pfedgate-0.5-two-paths", "pfedgate", {**SOME, "paths": "two"}, study=True)
    yield TableRow("pfedgate-0.5-exact", "pfedgate", {**FIRST_BLOCKS, "knapsack": "exact"}, study=True)
    sampled = {"schedule": {"sample": 0.2}}
    yield TableRow("pfedgate-0.5-20%", "pfedgate", SOME, sampled, study=True)
    yield TableRow("fedavg-20%", "fedavg", {}, sampled, study=True)
    yield TableRow("pfedgate-0.5-blocks-2", "pfedgate", {**FIRST_BLOCKS, "blocks": 2}, study=True)
    yield TableRow("pfedgate-0.5-blocks-2-whole-output", "pfedgate", {**SOME, "blocks": 2}, study=True)
    yield TableRow("pfedgate-0.5-blocks-10", "pfedgate", {**SOME, "blocks": 10}, study=True)
    for epochs in (2, 4, 8):
        more = {"epochs": epochs}
        yield TableRow(f"pfedgate-0.5-epochs-{epochs}", "pfedgate", SOME, more, study=True)
    for alpha in (0.1, 0.01):
        skewed = {"partition": f"dirichlet-classes:{alpha}"}
        yield TableRow(f"pfedgate-1-alpha-{alpha}", "pfedgate", {**SOME, "density": 1.0}, skewed, study=True)
    yield TableRow("pfedgate-0.3-repo", "pfedgate", {**SOME, "density": 0.3, "ste": "repo"}, study=True)
    yield TableRow("pfedgate-0.5-one-by-one", "pfedgate", {**SOME, "test_batch": 1}, study=True, rare=True)


def _grid(size: Size, row: TableRow) -> Grid | None:
    """The rates among which validation images choose; nothing for a study, but of the whole."""
    if size != "whole" and row.study:
        return None
    factor = 10 if row.method in PLAIN else 1
    rates = tuple(round(factor * rate, 4) for rate in RATES)
    if row.name == "pfedme":  # a spring is weak enough for its rate: w moves by at most 1/lambda times a gradient
        pairs = tuple((rate, round(1 / rate, 4)) for rate in rates)
        return Grid("training.lr,options.lambda_", pairs, SCALES[size].tuned, point="post", validation=0.25)
    return Grid("training.lr", rates, SCALES[size].tuned, point="post", validation=0.25)


def _settings(size: Size, data: str, row: TableRow, seed: int) -> dict[str, Any]:
    scale, options, more = SCALES[size], dict(row.options), dict(row.more)
    if row.method == "pfedgate":
        density = options["density"]
        usual = GATE_RATES[data][0.5 if isinstance(density, tuple) else density]
        options = {"gate_start": scale.start, **options, "gate_lr": 0.1 if scale.model else usual}
    if row.method == "fedmd":
        options |= {"public": PUBLIC[data], "align": 5000}
    training: dict[str, Any] = {
        "batch": scale.batch,
        "momentum": 0.0 if row.method in PLAIN else 0.9,
        "weight_decay": 5e-4,
        "clip": 10.0,
        "drops": [0.75],
        "epochs": more.pop("epochs", 1),
    }
    if _grid(size, row) is None:
        training["lr"] = RATES[0] * (10 if row.method in PLAIN else 1)
    return {
        "method": row.method,
        "data": excerpt(data, scale.images) if scale.images else data,
        "columns": AS_IT_IS if scale.images else {},
        "model": scale.model or MODELS[data],
        "clients": scale.clients,
        "partition": "dirichlet-classes:0.4",
        "rounds": scale.rounds,
        "seed": seed,
        "options": options,
        "training": training,
        "split": {"use": "pooled", "test": 0.2, "validation": 0.25},
        "evaluation": {"every": scale.every, "post": "participants", "ft": row.name == "fedavg"},
        **more,
    }
