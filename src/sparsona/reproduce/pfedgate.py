"""pFedGate's table 1 and what is around it: densities, partial participation, new clients, gates in a dendrogram.

Fashion-MNIST with the LEAF net stands in for EMNIST, whose 62 classes are not to be had everywhere. All methods are
measured at `pre` and at `post`. `quick` makes do with an excerpt of 3,000 images, 20 clients, 12 rounds, small batches
and the LeNet for both data sets. The paper's gate starts by halving every layer; its model then does not leave chance
within so few steps, so `quick` starts it nearly open (gate_start = 3) and runs the paper's start once beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data import describe, load, roots
from sparsona.gate import Gated
from sparsona.reproduce import PAPERS, Case, Check, Claim, Paper, Summary, score
from sparsona.state import unpack

TABLE_1 = {
    # on cifar-10 and on EMNIST: mean and bottom decile
    "local": ((0.6191, None), (0.7191, None)),
    "fedavg": ((0.6833, 0.6022), (0.8254, 0.7507)),
    "fedavg-ft": ((0.6991, 0.6155), (0.8319, 0.7683)),
    "ditto": ((0.7314, None), (None, None)),
    "fedem": ((0.7243, 0.6288), (0.8341, 0.7659)),
    "heterofl": ((0.7097, 0.6364), (0.8564, 0.7776)),
    "fedmask": ((0.7054, 0.6137), (None, None)),
    "pfedgate-1": ((0.7518, 0.6667), (0.8711, 0.8143)),
    "pfedgate-0.5": ((0.7407, 0.6421), (0.8728, 0.8115)),
    "pfedgate-0.3": ((0.7365, 0.6439), (0.8709, 0.8252)),
}
BASELINES = (
    "local",
    "fedavg",
    "fedavg-ft",
    "ditto",
    "fedper",
    "fedrep",
    "lg-fedavg",
    "heterofl",
    "fedem",
    "fedmask",
    "fedmd",
)
MODELS = {"fashion-mnist": "leaf-cnn", "cifar-10": "lenet-cifar"}
RATES = {
    # of the model and of the gate, by density: the paper's table 7
    "fashion-mnist": {1.0: (0.1, 0.1), 0.5: (0.1, 0.1), 0.3: (0.03, 0.5), 0.1: (0.03, 0.5)},
    "cifar-10": {1.0: (0.03, 0.05), 0.5: (0.03, 1.5), 0.3: (0.03, 1.5), 0.1: (0.03, 1.5)},
}
EXCERPT = 3000
ROUNDS = 12
START = 3.0
"""These are for `quick`."""


def excerpt(data: str, count: int) -> str:
    """Some images of a data set, the same for everyone, as a data set of its own."""
    path = roots()[0] / "excerpts" / f"{data}-{count}.npz"
    if not path.exists() and describe(data).present:
        whole = load(data)
        chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:count])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=whole.inputs[chosen], y=whole.targets[chosen])
    return f"npz:{path}"


@PAPERS.add
def pfedgate(quick: bool) -> Paper:
    return Paper(
        "pFedGate: Efficient Personalized Federated Learning via Sparse Model-Adaptation",
        list(_cases(quick)),
        CLAIMS,
        {f"pfedgate-dendrogram-{data}.png": _dendrogram(data) for data in MODELS},
    )


def _cases(quick: bool) -> Iterator[Case]:
    for number, (data, column) in enumerate((("fashion-mnist", 1), ("cifar-10", 0))):
        order = 1000.0 * number
        for density in (0.5, 1.0, 0.3, 0.1):
            options: dict[str, Any] = {"density": density, "paths": "one", "knapsack": "greedy"}
            if density == 0.1:
                options["split"] = "paper"  # with equal blocks a fifth is the least
            yield _case(quick, data, f"pfedgate-{density:g}", column, order + 10 / density, options)
        for place, method in enumerate(BASELINES):
            yield _case(quick, data, method, column, order + 15 + 10 * place, {})
        some = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
        if quick:
            yield _case(quick, data, "pfedgate-0.5-closed", column, order + 190, {**some, "gate_start": 0.0})
        ours = {"density": 0.5, "paths": "two", "knapsack": "exact", "gate_start": 3.0}
        yield _case(quick, data, "pfedgate-0.5-ours", column, order + 22, ours)
        yield _case(quick, data, "pfedgate-0.5-two-paths", column, order + 200, {**some, "paths": "two"})
        yield _case(quick, data, "pfedgate-0.3-repo", column, order + 210, {**some, "density": 0.3, "ste": "repo"})
        yield _case(quick, data, "pfedgate-0.5-exact", column, order + 220, {**some, "knapsack": "exact"})
        for method, options in (("fedavg", {}), ("pfedgate-0.5", some)):
            yield _case(quick, data, f"{method}-20%", column, order + 230, options, {"schedule": {"sample": 0.2}})
            yield _case(quick, data, f"{method}-new", column, order + 240, options, {"new_clients": 0.2})


def _case(
    quick: bool,
    data: str,
    name: str,
    column: int,
    cost: float,
    options: Mapping[str, Any],
    more: Mapping[str, Any] = {},
) -> Case:
    method = name.split("-0")[0].split("-1")[0].split("-20%")[0].split("-new")[0]
    rates = (0.03, 0.1) if quick else RATES[data].get(options.get("density", 0.0), (0.03, 0.0))
    model = "lenet-cifar" if quick else MODELS[data]
    if method == "pfedgate":
        options = {"gate_start": START if quick else 0.0, **options, "gate_lr": rates[1]}
    if method == "fedmd" and not quick:
        options = {**options, "public": "cifar-100" if data == "cifar-10" else "mnist", "align": 5000}
    settings: dict[str, Any] = {
        "method": method,
        "data": excerpt(data, EXCERPT) if quick else data,
        "model": model,
        "clients": 20 if quick else 100,
        "partition": "dirichlet-classes:0.4",
        "rounds": ROUNDS if quick else 400,
        "seed": 1,
        "options": options,
        "training": {
            "batch": 8 if quick else 128, "lr": rates[0], "momentum": 0.9, "weight_decay": 5e-4, "clip": 10.0,
            "drops": [0.75],
        },
        "split": {"use": "pooled", "test": 0.2, "validation": 0.25},
        "evaluation": {"every": 0 if quick else 50, "post": "participants"},
        **more,
    }  # fmt: skip
    paper = TABLE_1.get(name, ((None, None), (None, None)))[column][0]
    return Case(f"{data}-{name}", f"{data}, {model}", settings, paper, cost)


def _bottom(summary: Summary, point: str) -> float | None:
    found = (summary[summary["metric"]].get(point) or {}).get("bottom_decile")
    return None if found is None else float(found)


def _above(data: str, one: str, others: tuple[str, ...], point: str, bottom: bool = False) -> Check:
    """Whether `one` is above all of the `others` that were run, at the same point."""
    of = _bottom if bottom else score

    def check(done: Mapping[str, Summary]) -> bool | None:
        ours = of(done[f"{data}-{one}"], point) if f"{data}-{one}" in done else None
        theirs = [of(done[f"{data}-{name}"], point) for name in others if f"{data}-{name}" in done]
        if ours is None or not theirs:
            return None
        return all(value is not None and ours > value for value in theirs)

    return check


def _loses(data: str, one: str, other: str, most: float, point: str) -> Check:
    """Whether `other` is at most so much below `one`."""

    def check(done: Mapping[str, Summary]) -> bool | None:
        a, b = (score(done[f"{data}-{name}"], point) if f"{data}-{name}" in done else None for name in (one, other))
        return None if a is None or b is None else a - b <= most

    return check


CLAIMS = [
    claim
    for data in MODELS
    for claim in (
        *(
            Claim(
                f"{data}: density 0.3 above all baselines that were run, {what}, `{point}` (C1)",
                _above(data, "pfedgate-0.3", BASELINES, point, bottom),
            )
            for point in ("pre", "post")
            for what, bottom in (("mean", False), ("bottom decile", True))
        ),
        Claim(f"{data}: from density 1 to 0.3 at most 2.5 points are lost, `post` (C2)",
              _loses(data, "pfedgate-1", "pfedgate-0.3", 0.025, "post")),
        Claim(f"{data}: 20 % participation costs less than a point, `post` (C3)",
              _loses(data, "pfedgate-0.5", "pfedgate-0.5-20%", 0.01, "post")),
        Claim(f"against it, {data}: FedAvg at `post` is above pFedGate 0.5 at `post`",
              _above(data, "fedavg", ("pfedgate-0.5",), "post")),
        Claim(f"against it, {data}: `local` is above pFedGate 0.5 at `post`",
              _above(data, "local", ("pfedgate-0.5",), "post")),
    )
]  # fmt: skip


def gates(run: Path) -> dict[str, Gated]:
    """The clients' models of a finished run."""
    files = sorted((run / "models").glob("*.safetensors"))
    return {file.stem: unpack(file.read_bytes(), Gated) for file in files}


def _dendrogram(data: str) -> Any:
    def draw(runs: Path, to: Path) -> bool:
        """Ward's clusters of the clients by the scales that their gates give to the blocks: the paper's figure 4."""
        from matplotlib.figure import Figure
        from scipy.cluster.hierarchy import dendrogram, linkage

        if not (runs / f"{data}-pfedgate-0.5" / "summary.json").exists():
            return False
        found = gates(runs / f"{data}-pfedgate-0.5")
        scales = np.stack([model.frozen for model in found.values()]).astype(np.float64)
        figure = Figure(figsize=(8, 5), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(1, 1.4))
        tree = dendrogram(linkage(scales, "ward"), labels=list(found), ax=above, color_threshold=0)
        above.set_ylabel("Ward's distance")
        below.imshow(scales[tree["leaves"]].T, aspect="auto", cmap="viridis", vmin=0, vmax=1)
        below.set_xlabel("clients, as above")
        below.set_ylabel("block: its scale")
        figure.savefig(to, dpi=110)
        return True

    return draw
