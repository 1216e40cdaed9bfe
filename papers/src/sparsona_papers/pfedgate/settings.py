"""How a row of pFedGate's tables is trained: the data sets with their nets and clients, the sizes, the rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparsona_papers._excerpt import AS_IT_IS, excerpt
from sparsona_papers._paper import Grid, Size

RATES = (0.1, 0.03, 0.01, 0.3, 0.5)
"""The rates with a momentum of 0.9 among which validation images choose: the paper's for EMNIST first, and others that
it tried, up to the largest."""
FIXED = f"-lr-{RATES[0]:g}"
"""Ending of the names of rows with the first rate. In `quick` and `day`, studies have this rate and are compared with
these rows.
"""
ALL_RATES = (0.1, 0.03, 0.3, 0.05, 0.01, 0.5, 0.005)
"""The rates of the size `paper`: all that the paper tried."""
SCORE_RATES = (20.0, 5.0, 80.0, 320.0)
"""Rates of FedMask's scores to choose from, its default first."""
PLAIN = ("per-fedavg", "pfedme")
"""Methods that refuse momentum. Their rates are ten times as high, the effect of a momentum of 0.9."""


@dataclass(frozen=True)
class DataSet:
    """A data set of the paper: name, net, image shape, numbers of classes, training images and clients, partition, and
    the gate's rates by density (table 7; for 0.1 those of 0.3).

    `images` limits the number of images (0: all). `public` names FedMD's public data. `paths` is the gate's number of
    paths in the authors' scripts, `masked` the number of layers that FedMask masks.
    """

    name: str
    model: str
    shape: tuple[int, int, int]
    classes: int
    trained: int
    gate_rates: Mapping[float, float]
    public: str = ""
    clients: int = 100
    partition: str = "dirichlet-classes:0.4"
    images: int = 0
    paths: Literal["one", "two"] = "one"
    masked: int = 2


DATA = {
    "fashion-mnist": DataSet(
        "fashion-mnist", "leaf-cnn", (1, 28, 28), 10, 42_000, {1.0: 0.1, 0.5: 0.1, 0.3: 0.5, 0.1: 0.5}, "mnist"
    ),
    "cifar-10": DataSet(
        "cifar-10", "lenet-cifar", (3, 32, 32), 10, 36_000, {1.0: 0.05, 0.5: 1.5, 0.3: 1.5, 0.1: 1.5}, "cifar-100"
    ),
    "emnist": DataSet(
        "emnist:byclass", "leaf-cnn", (1, 28, 28), 62, 48_855, {1.0: 0.1, 0.5: 0.1, 0.3: 0.5, 0.1: 0.5},
        images=81_425, masked=1,
    ),
    "femnist": DataSet(
        "femnist", "leaf-cnn", (1, 28, 28), 62, 72_500, {1.0: 0.1, 0.5: 0.05, 0.3: 0.05, 0.1: 0.05}, "emnist:byclass",
        clients=539, partition="groups", masked=1,
    ),
    "cifar-100": DataSet(
        "cifar-100", "cnn-cifar100", (3, 32, 32), 100, 36_000, {1.0: 1.5, 0.5: 1.5, 0.3: 0.5, 0.1: 0.5},
        clients=50, paths="two",
    ),
}  # fmt: skip
"""Fashion-MNIST is as EMNIST is. Of FEMNIST 539 of LEAF's writers are drawn, 15 % of them, as FedEM's code does."""


@dataclass(frozen=True)
class Scale:
    """The scale of a size: images (0: all), clients (0: the data set's), rounds, batch size, rounds of a trial, rounds
    between evaluations (0: only the last), and the gate's start. `model` replaces the paper's; the gate then learns at
    0.1 whatever its density. `more` are settings that only this size has.
    """

    images: int
    clients: int
    rounds: int
    batch: int
    tuned: int
    every: int
    start: float
    model: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


SCALES: dict[Size, Scale] = {
    "quick": Scale(2_000, 10, 60, 40, 20, 0, 3.0, "lenet5"),
    "day": Scale(10_000, 20, 100, 40, 20, 20, 3.0, "lenet5"),
    "whole": Scale(0, 100, 400, 128, 50, 50, 0.0),
    "paper": Scale(0, 0, 400, 128, 50, 50, 0.0, more={"packing": "plain"}),
}
"""About 200, 800 and, in the last two, 1,600 steps a client. `quick` takes too few for the paper's start of the gate,
which is a row of its own there and in `day`. Steps decide: four local epochs in place of one are worth nine points in
`quick`."""


@dataclass(frozen=True)
class TableRow:
    """One row of a table: its name, the method with options, and further settings.

    A `study` has the first rate of the grid and one seed in `quick` and `day`, or three seeds if it is `repeated` or
    its clients join or are sampled. `sizes` are the sizes that have the row; `day` names its rows itself. A row of
    `quick` alone has one seed there, unless it is `repeated`. A `curve` is measured after every round. A row that is
    not `tuned` has one seed and the second rate in every size.
    """

    name: str
    method: str
    options: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    study: bool = False
    sizes: tuple[Size, ...] = ("quick", "whole")
    curve: bool = False
    repeated: bool = False
    tuned: bool = True


SEEDS = (1, 2, 3)


def seeds_of(size: Size, row: TableRow) -> tuple[int, ...]:
    """The seeds of a row."""
    few = row.study and not row.repeated and not row.more.keys() & {"new_clients", "schedule"}
    once = size == "day" and row.sizes == ("quick",) and not row.repeated
    short = size in ("quick", "day") and (few or once)
    return SEEDS[: 1 if short or not row.tuned else None]


def grid_of(size: Size, row: TableRow) -> Grid | None:
    """Return the rates among which validation images choose; none for a study in `quick` and `day`."""
    if not row.tuned or (size in ("quick", "day") and row.study):
        return None
    factor = 10 if row.method in PLAIN else 1
    rates = tuple(round(factor * rate, 4) for rate in (ALL_RATES if size == "paper" else RATES))
    if row.method == "fedmask":  # it trains scores, at a rate of their own
        return Grid("options.score_lr", SCORE_RATES, SCALES[size].tuned, point="post", validation=0.25)
    if row.name == "pfedme":  # a spring is weak enough for its rate: w moves by at most 1/lambda times a gradient
        pairs = tuple((rate, round(1 / rate, 4)) for rate in rates)
        return Grid("training.lr,options.lambda_", pairs, SCALES[size].tuned, point="post", validation=0.25)
    return Grid("training.lr", rates, SCALES[size].tuned, point="post", validation=0.25)


def settings_of(size: Size, data: str, row: TableRow, seed: int) -> dict[str, Any]:
    """The settings of a run."""
    scale, of, options, more = SCALES[size], DATA[data], dict(row.options), dict(row.more)
    if row.method == "pfedgate":
        density = options["density"]
        usual = of.gate_rates[0.5 if isinstance(density, tuple) else density]
        options = {"gate_start": scale.start, **options, "gate_lr": 0.1 if scale.model else usual}
    if row.method == "fedmd":
        options |= {"public": of.public, "align": 5000}
    training: dict[str, Any] = {
        "batch": scale.batch,
        "momentum": 0.0 if row.method in PLAIN else 0.9,
        "weight_decay": 5e-4,
        "clip": 10.0,
        "drops": [0.75],
        "epochs": more.pop("epochs", 1),
    }
    if grid_of(size, row) is None:
        training["lr"] = RATES[0 if row.tuned else 1] * (10 if row.method in PLAIN else 1)
    images = scale.images or of.images
    return {
        "method": row.method,
        "data": excerpt(of.name, images) if images else of.name,
        "columns": AS_IT_IS if scale.images else {"task": "classification"} if images else {},
        "model": scale.model or of.model,
        "clients": scale.clients or of.clients,
        "partition": of.partition,
        "rounds": scale.rounds,
        "seed": seed,
        "options": options,
        "training": training,
        "split": {"use": "pooled", "test": 0.2, "validation": 0.25},
        "evaluation": {
            "every": 1 if row.curve else scale.every,
            "post": "participants",
            "ft": row.name in ("fedavg", f"fedavg{FIXED}"),
        },
        **scale.more,
        **more,
    }
