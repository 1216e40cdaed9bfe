"""pFedGate's table 1 and what is around it: densities, partial participation, new clients, gates in a dendrogram.

Fashion-MNIST with the LEAF net stands in for EMNIST, whose 62 classes are not to be had everywhere. All methods are
measured at `pre` and at `post`. `quick` makes do with an excerpt of 3,000 images, 20 clients, 12 rounds, small batches
and the LeNet for both data sets. The paper's gate starts by halving every layer; its model then does not leave chance
within so few steps, so `quick` starts it nearly open (gate_start = 3) and runs the paper's start once beside it. The
cases `long-*` are the quick setting for 80 rounds; they belong to the full command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from sparsona.data import describe, load, roots
from sparsona.data.dataset import Indices
from sparsona.experiment import read
from sparsona.files import write_atomically
from sparsona.message import Vector
from sparsona.methods.pfedgate.gate import Gated, block_scales, ready
from sparsona.prepare import prepare
from sparsona.reproduce import PAPERS, Case, Check, Claim, Paper, Summary, score
from sparsona.runs.state import unpack
from sparsona.training.runner import ModelRunner

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
BASELINES: dict[str, dict[str, Any]] = {
    "local": {},
    "fedavg": {},
    "fedavg-ft": {},
    "ditto": {},
    "per-fedavg": {},
    "pfedme": {"eta_p": 0.09},
    "pfedme-fedem": {"variant": "fedem", "lambda_": 1.0},
    "fedper": {},
    "fedrep": {},
    "lg-fedavg": {},
    "heterofl": {},
    "fedem": {},
    "fedmask": {},
    "fedmd": {},
}
"""The rows beside pFedGate, with their options. Both forms of pFedMe; `eta_p` is its authors' for a small ConvNet."""
PLAIN = ("per-fedavg", "pfedme")
"""These refuse momentum. Their rate is ten times as high instead: a momentum of 0.9 makes as much of it in the end."""
PUBLIC = {"fashion-mnist": "mnist", "cifar-10": "cifar-100"}
"""What FedMD's clients know in common. Where it is not there, `quick` has noise in its place."""
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
LONG = 80
SEEDS = {True: (1,), False: (1, 2, 3)}
SOME: dict[str, Any] = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
"""The authors' code as it comes, at density 0.5."""


def excerpt(data: str, count: int) -> str:
    """Some images of a data set, the same for everyone, as a data set of its own."""
    path = roots()[0] / "excerpts" / f"{data}-{count}.npz"
    if not path.exists() and describe(data).present:
        whole = load(data)
        chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:count])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=whole.inputs[chosen], y=whole.targets[chosen])
    return f"npz:{path}"


@dataclass(frozen=True)
class Row:
    """One line of a table: what it is called, the method with its options, and what else is different."""

    name: str
    method: str
    options: Mapping[str, Any]
    cost: float
    more: Mapping[str, Any] = field(default_factory=dict)


@PAPERS.add
def pfedgate(quick: bool) -> Paper:
    drawings = {f"pfedgate-dendrogram-{data}.png": _dendrogram(data) for data in MODELS}
    return Paper(
        "pFedGate: Efficient Personalized Federated Learning via Sparse Model-Adaptation",
        list(_cases(quick)),
        list(_claims(quick)),
        {**drawings, "pfedgate-masks.md": _masks_table},
    )


def _cases(quick: bool) -> Iterator[Case]:
    if not quick:
        yield from _long()
    for number, (data, column) in enumerate((("fashion-mnist", 1), ("cifar-10", 0))):
        model = "lenet-cifar" if quick else MODELS[data]
        for seed in SEEDS[quick]:
            for row in _rows(quick):
                name = f"{data}-{row.name}" + (f"-seed{seed}" if seed > 1 else "")
                paper = TABLE_1.get(row.name, ((None, None), (None, None)))[column][0]
                cost = 1000 * number + 10_000 * seed + row.cost
                yield Case(name, f"{data}, {model}", _settings(quick, data, row, seed), paper, cost)


def _rows(quick: bool) -> Iterator[Row]:
    for density in (0.5, 1.0, 0.3, 0.1):
        options = {**SOME, "density": density}
        if density == 0.1:
            options["split"] = "paper"  # with equal blocks a fifth is the least
        yield Row(f"pfedgate-{density:g}", "pfedgate", options, 10 / density)
    for place, (name, options) in enumerate(BASELINES.items()):
        yield Row(name, name.removesuffix("-fedem"), options, 15 + 10 * place)
    ours = {"density": 0.5, "paths": "two", "knapsack": "exact", "gate_start": 3.0}
    if quick:
        yield Row("pfedgate-0.5-closed", "pfedgate", {**SOME, "gate_start": 0.0}, 190)
    yield Row("pfedgate-0.5-ours", "pfedgate", ours, 22)
    yield Row("pfedgate-0.5-two-paths", "pfedgate", {**SOME, "paths": "two"}, 200)
    yield Row("pfedgate-0.3-repo", "pfedgate", {**SOME, "density": 0.3, "ste": "repo"}, 210)
    yield Row("pfedgate-0.5-exact", "pfedgate", {**SOME, "knapsack": "exact"}, 220)
    yield Row("pfedgate-0.5-no-post-norm", "pfedgate", {**SOME, "post_norm": False}, 222)
    yield Row("pfedgate-0.5-one-by-one", "pfedgate", {**SOME, "test_batch": 1}, 224)
    yield Row("fedavg-20%", "fedavg", {}, 230, {"schedule": {"sample": 0.2}})
    yield Row("fedavg-new", "fedavg", {}, 240, {"new_clients": 0.2})
    yield Row("pfedgate-0.5-20%", "pfedgate", SOME, 230, {"schedule": {"sample": 0.2}})
    for epochs in (1, 5, 10):
        name = "pfedgate-0.5-new" + (f"-{epochs}" if epochs > 1 else "")
        yield Row(name, "pfedgate", {**SOME, "new_epochs": epochs}, 240 + epochs, {"new_clients": 0.2})


def _long() -> Iterator[Case]:
    """`quick`'s setting for long enough that gates have learnt something."""
    exact = {**SOME, "knapsack": "exact"}
    rows = [Row(name, name, {}, place) for place, name in enumerate(("local", "fedavg", "fedavg-ft"))]
    for density in (1.0, 0.5, 0.3):
        name = f"pfedgate-{density:g}-exact" if density < 1 else "pfedgate-1"
        rows.append(Row(name, "pfedgate", {**exact, "density": density}, 10))
    for row in rows:
        settings = {**_settings(True, "fashion-mnist", row, 1), "rounds": LONG}
        yield Case(f"long-{row.name}", f"fashion-mnist, the quick setting for {LONG} rounds", settings, cost=row.cost)


def _settings(quick: bool, data: str, row: Row, seed: int) -> dict[str, Any]:
    options = dict(row.options)
    rates = (0.03, 0.1) if quick else RATES[data].get(options.get("density", 0.0), (0.03, 0.0))
    rate, momentum = (10 * rates[0], 0.0) if row.method in PLAIN else (rates[0], 0.9)
    if row.method == "pfedgate":
        options = {"gate_start": START if quick else 0.0, **options, "gate_lr": rates[1]}
    if row.method == "fedmd" and (not quick or describe(PUBLIC[data]).present):
        options |= {"public": PUBLIC[data]} if quick else {"public": PUBLIC[data], "align": 5000}
    return {
        "method": row.method,
        "data": excerpt(data, EXCERPT) if quick else data,
        "columns": {"scaling": "none"} if quick else {},
        "model": "lenet-cifar" if quick else MODELS[data],
        "clients": 20 if quick else 100,
        "partition": "dirichlet-classes:0.4",
        "rounds": ROUNDS if quick else 400,
        "seed": seed,
        "options": options,
        "training": {
            "batch": 8 if quick else 128, "lr": rate, "momentum": momentum, "weight_decay": 5e-4, "clip": 10.0,
            "drops": [0.75],
        },
        "split": {"use": "pooled", "test": 0.2, "validation": 0.25},
        "evaluation": {"every": 0 if quick else 50, "post": "participants"},
        **row.more,
    }  # fmt: skip


Reading: TypeAlias = Callable[[Summary, str], float | None]
"""A number of a run at an evaluation point; None where it was not measured."""


def bottom(summary: Summary, point: str) -> float | None:
    """The bottom decile of the clients."""
    found = (summary[summary["metric"]].get(point) or {}).get("bottom_decile")
    return None if found is None else float(found)


def newcomers(summary: Summary, point: str) -> float | None:
    """The mean over the clients that joined at the end."""
    found = (summary.get("new_clients") or {}).get(summary["metric"], {}).get(point) or {}
    return None if found.get("mean") is None else float(found["mean"])


def _of(done: Mapping[str, Summary], name: str, point: str, of: Reading = score) -> float | None:
    """The mean over the seeds that were run."""
    runs = [summary for key, summary in done.items() if key.partition("-seed")[0] == name]
    found = [value for value in (of(summary, point) for summary in runs) if value is not None]
    return sum(found) / len(found) if found else None


def _above(one: str, others: Iterable[str], point: str, of: Reading = score) -> Check:
    """Whether `one` is above all of the `others` that were run, at the same point."""

    def check(done: Mapping[str, Summary]) -> bool | None:
        ours = _of(done, one, point, of)
        theirs = [value for value in (_of(done, name, point, of) for name in others) if value is not None]
        return None if ours is None or not theirs else all(ours > value for value in theirs)

    return check


def _loses(one: str, other: str, most: float, point: str, of: Reading = score) -> Check:
    """Whether `other`, read by `of`, is at most so much below `one`."""

    def check(done: Mapping[str, Summary]) -> bool | None:
        a, b = _of(done, one, point), _of(done, other, point, of)
        return None if a is None or b is None else a - b <= most

    return check


def _claims(quick: bool) -> Iterator[Claim]:
    for data in MODELS:
        for point in ("pre", "post"):
            for what, of in (("mean", score), ("bottom decile", bottom)):
                yield Claim(
                    f"{data}: density 0.3 above all baselines that were run, {what}, `{point}` (C1)",
                    _above(f"{data}-pfedgate-0.3", [f"{data}-{name}" for name in BASELINES], point, of),
                )
        yield Claim(
            f"{data}: from density 1 to 0.3 at most 2.5 points are lost, `post` (C2)",
            _loses(f"{data}-pfedgate-1", f"{data}-pfedgate-0.3", 0.025, "post"),
        )
        yield Claim(
            f"{data}: 20 % participation costs less than a point, `post` (C3)",
            _loses(f"{data}-pfedgate-0.5", f"{data}-pfedgate-0.5-20%", 0.01, "post"),
        )
        for epochs in ("", "-5", "-10"):
            run = f"{data}-pfedgate-0.5-new{epochs}"
            yield Claim(
                f"{data}: new clients are less than a point behind, `post`, epochs: {epochs[1:] or 1} (C6)",
                _loses(run, run, 0.01, "post", newcomers),
            )
        for rival in ("fedavg", "local"):
            yield Claim(
                f"against it, {data}: `{rival}` at `post` is above pFedGate 0.5 at `post`",
                _above(f"{data}-{rival}", [f"{data}-pfedgate-0.5"], "post"),
            )
    if not quick:
        rivals = [f"long-{name}" for name in ("local", "fedavg", "fedavg-ft")]
        for point in ("pre", "post"):
            yield Claim(f"{LONG} rounds: density 0.5 above local, fedavg and fedavg-ft, `{point}`",
                        _above("long-pfedgate-0.5-exact", rivals, point))  # fmt: skip


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


@dataclass(frozen=True)
class Masks:
    """What the gates of a run do, in the mean over its clients.

    `density` is what the models that are tested keep, all blocks counted. Over the batches of a client's own training
    samples: the variance of a block's scale M' in evaluation and in training mode, how many different choices of blocks
    there are in training mode, and the share of the model that any of these keeps, which is what goes up.
    """

    density: float
    evaluated: float
    trained: float
    choices: float
    sent: float


def masks(run: Path) -> Masks:
    """Look at the gates of a finished run."""
    setup = prepare(read(run / "experiment.toml"), origin=str(run)).setup
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)

    def scales(model: Gated, samples: Indices, size: int, training: bool) -> Vector:
        gate = ready(model.design, model.gate).train(training)
        parts = [samples[i : i + size] for i in range(0, len(samples), size)]
        found = [
            block_scales(gate, runner.batch(p)[0], model.cut, model.budget) for p in parts if len(p) > 1 or size == 1
        ]
        return np.stack(found)

    rows = []
    for client, model in gates(run).items():
        share, sizes = setup.federation.splits[client], model.cut.sizes / model.cut.sizes.sum()
        tested = scales(model, share.test, model.batch, False) if model.batch else model.frozen[None]
        evaluated, trained = (scales(model, share.train, setup.config.batch, mode) for mode in (False, True))
        kept = trained != 0
        rows.append(
            (
                ((tested != 0) @ sizes).mean(),
                evaluated.var(0).mean(),
                trained.var(0).mean(),
                len(np.unique(kept, axis=0)),
                kept.any(0) @ sizes,
            )
        )
    return Masks(*(float(column) for column in np.mean(rows, 0)))


def _masks_table(runs: Path, to: Path) -> bool:
    """The masks of all runs of pFedGate that are finished. Lines of an older table stay, unless their run is newer."""
    told = to.read_text().splitlines() if to.exists() else []
    known = {line.split(" | ")[0].removeprefix("| "): line for line in told}
    lines = ["| run | density asked for | kept | variance of M', evaluation | training | choices a client | sent |"]
    lines.append("|---|---|---|---|---|---|---|")
    for summary in sorted(runs.glob("*/summary.json")):
        found = json.loads(summary.read_text())
        name = summary.parent.name
        if name in known and summary.stat().st_mtime < to.stat().st_mtime:
            lines.append(known[name])
        elif found["method"] == "pfedgate":
            m = masks(summary.parent)
            numbers = f"{m.density:.4f} | {m.evaluated:.2e} | {m.trained:.2e} | {m.choices:.2f} | {m.sent:.4f}"
            lines.append(f"| {name} | {found['options']['density']} | {numbers} |")
    write_atomically(to, "\n".join(lines) + "\n")
    return len(lines) > 2
