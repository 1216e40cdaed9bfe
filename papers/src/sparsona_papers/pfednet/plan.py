"""pFedNet's runs: data, methods, and their choices on validation samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from sparsona.data.dataset import Array, Dataset
from sparsona_papers._command import Command
from sparsona_papers._excerpt import AS_IT_IS, derived
from sparsona_papers._paper import Case, Grid, Size

LAMBDAS = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 2.0)
GAMMAS = (0.01, 0.03, 0.1, 0.3, 1.0)
FREE = (0.03, 0.1, 0.3)
"""Values of gamma in units of median |g| sqrt(d), zeros left out; the second ones also run with a free end."""
LEVELS = (2, 4, 8, 16)
QSGD = (1, 3, 7, 31)
SKETCHES = ("label", "shares", "mean", "cov", "kernel", "model")
AREAS = ("rawah", "neota", "comanche-peak", "cache-la-poudre")
RATE = 0.05
BATCHES = {"heart": 10.75, "kmeans": 3, "parts": 6}
"""In comparisons, the mean number of batches in a client's epoch: L2GD's 1/p, so that it trains as much."""
PULLS = (0.1, 0.4, 1.6)
"""L2GD's lambda: the specification's, and larger ones."""
SEEDS = {
    "heart": (10, 20),
    "areas-60": (3, 10),
    "areas-250": (3, 10),
    "kmeans": (5, 10),
    "parts": (5, 10),
    "fashion": (1, 5),
}
"""Seeds of `quick`, and of the whole."""
SAME = {"joining": "parts"}
"""`joining`: five of the twenty clients of `parts` come after training."""
ROUNDS = {False: 40, True: 20}
"""Clients of `quick`, by whether the partition follows labels."""
COST = {"areas-250": 3.0, "parts": 4.0, "joining": 4.0, "twins": 5.0, "kmeans": 6.0, "fashion": 9.0, "heads": 30.0}
"""Approximate seconds of a run of `quick`; 1 for all others."""
BEST = {"kmeans": 0.01, "fashion": 0.01}
"""Lambda of the byte-saving runs: the positive one of `LAMBDAS` that validation samples choose. A claim checks it."""
SAVERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gamma-0.1", "pfednet", {"gamma": 0.1, "gamma_unit": "median"}),
    ("levels-8", "pfednet", {"levels": 8}),
    ("qsgd-7", "qsgd", {"levels": 7}),
)
"""Ways to save bytes that claims compare, and which therefore have five seeds."""
FOUR = (0.05, 0.1, 0.2, 0.4)
"""Learning rates for methods that have a strength to choose, too, among three."""
TWELVE = (0.05, 0.02, 0.03, 0.04, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.57, 0.8)
"""Learning rates for the other methods, so that every method has equally many trials."""


def _pairs(*strengths: float, twice: bool = False) -> tuple[tuple[float, ...], ...]:
    return tuple((rate, rate, s) if twice else (rate, s) for rate in FOUR for s in strengths)


TUNED: dict[str, tuple[str, tuple[float | tuple[float, ...], ...]]] = {
    # what is chosen on validation samples, among twelve
    "pfednet": ("training.lr,options.eta,options.lam", _pairs(0.03, 0.01, 0.1, twice=True)),
    "local": ("training.lr", TWELVE),
    "fedavg": ("training.lr", TWELVE),
    "ditto": ("training.lr,options.lam", _pairs(0.5, 0.1, 1.0)),
    "pfedme": ("training.lr,options.lambda_", _pairs(15, 5, 2)),
    "l2gd": ("training.lr,options.lam", tuple((rate, lam * RATE / rate) for rate in FOUR for lam in PULLS)),
    "ifca": ("training.lr,options.clusters", _pairs(2, 3, 4)),
}
"""L2GD's lambda is that of the usual rate: its pull is the product of both."""
JUDGES = 3
"""Seeds whose validation samples choose; one seed has only a hundred."""
COMPARED = ("heart", "kmeans", "parts")
DEFAULT = 16
"""pFedNet's default levels."""
ROUNDED = (0, 4, 8, 16, 32)
"""Levels of an update with all seeds, for pFedNet's default: at `tuned-pfednet`'s first lambda."""


def excerpt(name: str) -> str:
    """Return some samples of covtype or Fashion-MNIST with their clients, as a data set."""
    return derived(f"pfednet-{name}", "fashion-mnist" if name == "twins" else "covtype", partial(_dealt, name))


def _dealt(name: str, data: Dataset) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    train, test, owner = _owners(name, data, rng)
    chosen: dict[str, list[Array]] = {"train": [], "test": []}
    for client in np.unique(owner[owner >= 0]):
        mine = rng.permutation(np.flatnonzero(owner == client))
        chosen["train"].append(mine[:train])
        chosen["test"].append(mine[train : train + test])
    t, v = (np.concatenate(chosen[part]) for part in ("train", "test"))
    x, names = _normalised(data), np.array([f"{c:02d}" for c in range(100)])
    return {
        "x": x[t], "y": data.targets[t], "client": names[owner[t]],
        "x_test": x[v], "y_test": data.targets[v], "client_test": names[owner[v]],
    }  # fmt: skip


def _owners(name: str, data: Dataset, rng: np.random.Generator) -> tuple[int, int, Array]:
    """Return training and test samples per client, and the owner of each sample (-1: none)."""
    if name == "twins":  # five groups of four clients with the same two classes
        return 40, 200, data.targets // 2 * 4 + rng.integers(0, 4, len(data))
    assert data.groups is not None
    if name == "kmeans":
        from sklearn.cluster import MiniBatchKMeans

        x = _normalised(data)
        means = MiniBatchKMeans(20, random_state=0, n_init=3).fit(x[rng.choice(len(x), 60_000, replace=False)])
        return 50, 500, means.predict(x)
    if name == "parts":  # each area cut into five clients
        return 100, 400, data.groups * 5 + rng.integers(0, 5, len(data))
    return int(name.rpartition("-")[2]), 2000, data.groups


def _normalised(data: Dataset) -> Array:
    if data.inputs.dtype == np.uint8:
        return data.inputs
    return (data.inputs - np.array(data.mean, np.float32)) / np.array(data.std, np.float32)


def _settings(data: str, quick: bool) -> dict[str, Any]:
    dealt = data in ("fashion", "heads")
    out: dict[str, Any] = {
        "data": "heart-disease" if data == "heart" else "fashion-mnist" if dealt else excerpt(SAME.get(data, data)),
        "model": "convnet2" if data == "heads" else "logistic",
        "partition": "classes:3" if dealt else "groups",
        "clients": 20 if dealt else 0,
        "rounds": ROUNDS[dealt] if quick else 100,
        "engine": "inprocess",
        "training": {"lr": RATE, "batch": 16},
        "evaluation": {"every": 0, "post": "participants"},
    }
    if out["data"].startswith("npz:"):
        out["columns"] = AS_IT_IS  # an excerpt is normalised when it is made
    if dealt:
        out["training"]["steps"] = 10
    if data == "joining":
        out["new_clients"] = 0.25
    return out


def cases(size: Size) -> Iterator[Case]:
    """All runs of a size: none of `day` and `paper`."""
    if size in ("quick", "whole"):
        yield from _all(size == "quick")


def _all(quick: bool) -> Iterator[Case]:
    """All runs, with few seeds or many."""
    for data in COMPARED:
        for seed in range(5 if quick else 10):
            for name, (key, choices) in TUNED.items():
                more: dict[str, Any] = {"p": round(1 / BATCHES[data], 4)} if name == "l2gd" else {}
                if name == "pfednet":
                    more = {"levels": DEFAULT}
                grid = Grid(key, choices, 20, seeds=JUDGES)
                yield _case(data, f"tuned-{name}", name, {**more, **_sketch(data, name)}, seed, quick, grid)
    for data in (*COMPARED, "fashion"):
        for seed in range(5):
            for levels in ROUNDED:
                options = {"lam": 0.03, "levels": levels, **_sketch(data)}
                yield _case(data, f"rounded-{levels}", "pfednet", options, seed, quick)
    for data, counts in SEEDS.items():
        for seed in range(counts[0 if quick else 1]):
            yield _case(data, "local", "local", {}, seed, quick)
            yield _case(data, "fedavg", "fedavg", {}, seed, quick)
            for lam in LAMBDAS:
                yield _case(data, f"lam-{lam:g}", "pfednet", {"lam": lam, **_sketch(data)}, seed, quick)
            for name, method, options in (*_rivals(data), *_variants(data)):
                yield _case(data, name, method, options, seed, quick)
    for seed in range(5 if quick else 10):
        yield _case("joining", "fedavg", "fedavg", {}, seed, quick)
        for kind in ("label", "mean"):
            yield _case("joining", kind, "pfednet", {"lam": 0.03, "sketch": kind}, seed, quick)
    for data, lam in BEST.items():
        for gamma in GAMMAS:
            options = {"lam": lam, "gamma": gamma, "gamma_unit": "median"}
            yield _case(data, f"gamma-{gamma:g}", "pfednet", options, 0, quick)
            if gamma in FREE:
                yield _case(data, f"free-{gamma:g}", "pfednet", {**options, "pin_end": False}, 0, quick)
        for levels in LEVELS:
            yield _case(data, f"levels-{levels}", "pfednet", {"lam": lam, "levels": levels}, 0, quick)
            both = {"lam": lam, "levels": levels, "gamma": 0.1, "gamma_unit": "median"}
            yield _case(data, f"both-{levels}", "pfednet", both, 0, quick)
        for levels in QSGD:
            yield _case(data, f"qsgd-{levels}", "qsgd", {"levels": levels}, 0, quick)
        for seed in range(1, 5):
            if quick and SEEDS[data][0] == 1:
                yield _case(data, f"lam-{lam:g}", "pfednet", {"lam": lam}, seed, quick)
            for name, method, options in SAVERS:
                yield _case(data, name, method, options if method == "qsgd" else {"lam": lam, **options}, seed, quick)
    for data in ("twins", "heads"):
        yield _case(data, "local", "local", {}, 0, quick)
        yield _case(data, "fedavg", "fedavg", {}, 0, quick)
    for lam in (0.0, 0.01, 0.1):
        yield _case("heads", f"split-{lam:g}", "pfednet", {"lam": lam, "layout": "split"}, 0, quick)
    for layout in ("personal", "additive"):
        yield _case("heads", f"{layout}-0.01", "pfednet", {"lam": 0.01, "layout": layout}, 0, quick)
    for data in ("parts", "twins"):
        for kind in SKETCHES:
            yield _case(data, kind, "pfednet", {"lam": 0.03, "sketch": kind}, 0, quick)
            yield _case(data, f"{kind}-noise", "pfednet", {"lam": 0.03, "sketch": kind, "noise": 0.5}, 0, quick)


def _sketch(data: str, method: str = "pfednet") -> dict[str, Any]:
    """The sketch under which lambda is looked for: on `parts` one that finds the areas, else the default."""
    return {"sketch": "mean"} if data == "parts" and method == "pfednet" else {}


def _rivals(data: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if data in BATCHES:
        yield "ifca", "ifca", {"clusters": 2}
        for lam in PULLS:
            yield f"l2gd-{lam:g}", "l2gd", {"lam": lam, "p": round(1 / BATCHES[data], 4)}
        yield "ditto", "ditto", {}
        yield "pfedme", "pfedme", {}


def _variants(data: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return variants of pFedNet at the best lambda, which no claim uses: other norms, steps, neighbours, layouts."""
    if data == "heart":
        for lam in (0.004, 0.0125):
            yield f"l1-{lam:g}", "pfednet", {"lam": lam, "p": 1}
        for lam in (0.06, 0.2):
            yield f"inf-{lam:g}", "pfednet", {"lam": lam, "p": "inf"}
        yield "paper-0.06", "pfednet", {"lam": 0.06, "z_step": "paper"}
        yield "alone-0.05", "pfednet", {"lam": 0.0, "decay": "sqrt"}
    if data in ("heart", "kmeans"):
        lam = 0.06 if data == "heart" else 0.01
        for eta in (0.05, 0.1, 0.2):
            yield f"sqrt-{eta:g}", "pfednet", {"lam": lam, "decay": "sqrt", "eta": eta}
    if data in ("kmeans", "parts"):
        lam = 0.01 if data == "kmeans" else 0.03
        for k in (1, 5):
            yield f"k-{k}", "pfednet", {"lam": lam, "k": k, **_sketch(data)}
        yield "additive", "pfednet", {"lam": lam, "layout": "additive", **_sketch(data)}
        for weight in (0.0, lam):  # an additive model takes two steps for one: is it the sharing or the rate?
            yield f"twice-{weight:g}", "pfednet", {"lam": weight, "eta": 2 * RATE, **_sketch(data)}


def name_of(data: str, variant: str, seed: int) -> str:
    """The run of a variant on some data.

    >>> name_of("heart", "lam-0.1", 3)
    'heart-lam-0.1-3'
    """
    return f"{data}-{variant}-{seed}"


def _case(
    data: str, variant: str, method: str, options: dict[str, Any], seed: int, quick: bool, grid: Grid | None = None
) -> Case:
    settings = {**_settings(data, quick), "method": method, "options": options, "seed": seed}
    if method == "pfednet":
        settings["options"] = {"eta": RATE, "levels": 0, **options}
        settings["training"]["lr"] = settings["options"]["eta"]
    if method == "fedavg":
        settings["evaluation"] = {**settings["evaluation"], "ft": True}
    if grid is not None:
        del settings["training"]["lr"]
        settings["options"].pop("eta", None)
    name, cost = name_of(data, variant, seed), COST.get(data, 1.0)
    return Case(name, data, settings, cost=cost, row=f"{data}-{variant}", grid=grid)


COMMAND = Command("pfednet", cases)
