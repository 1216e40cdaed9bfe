"""pFedGate's tables: table 1 with its densities, partial participation, new clients, ablations, gates in a dendrogram.

Fashion-MNIST with the LEAF net, the paper's for EMNIST, stands in for EMNIST, whose 62 classes are not to be had
everywhere. `quick` has LeNet5, which is the LEAF net with a quarter of its width, 2,000 images, 10 clients of about 120
training images, 60 rounds of three batches of 40, and three seeds; its studies have one, but for new clients. Where the
gate starts is studied on the LEAF net itself (`leaf-*`): 1,000 images, 4 clients, 80 rounds. The paper has 100 clients,
400 rounds and batches of 128. All methods choose their learning rate among three on validation images; pFedGate's gate
has the paper's 0.1 there. The paper's mean over the clients is weighted by their sizes: the tables have both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data.dataset import Indices
from sparsona.experiment import read
from sparsona.files import write_atomically
from sparsona.message import Vector
from sparsona.methods.pfedgate import ServerState
from sparsona.methods.pfedgate.gate import Gated, block_scales, ready
from sparsona.prepare import Prepared, prepare
from sparsona.reproduce import MEASURED, PAPERS, Case, Grid, Paper, Runs, server_scores, spread
from sparsona.reproduce._excerpt import AS_IT_IS, excerpt
from sparsona.reproduce._verdicts import (
    At,
    Check,
    Claim,
    above,
    bottom,
    by_size,
    exceeds,
    extra,
    fact,
    lag,
    loses,
    never,
    newcomers,
    values,
    within,
)
from sparsona.runs.directory import RunDirectory
from sparsona.runs.state import unpack
from sparsona.training.runner import ModelRunner

TABLE_1: dict[str, tuple[tuple[float, float] | tuple[float, None], ...]] = {
    # on EMNIST and on cifar-10: mean, weighted by the clients' sizes, and bottom decile
    "local": ((0.7191, None), (0.6191, None)),
    "fedavg": ((0.8254, 0.7507), (0.6833, 0.6022)),
    "fedavg-ft": ((0.8319, 0.7683), (0.6991, 0.6155)),
    "fedem": ((0.8341, 0.7659), (0.7243, 0.6288)),
    "heterofl": ((0.8564, 0.7776), (0.7097, 0.6364)),
    "pfedgate-1": ((0.8711, 0.8143), (0.7518, 0.6667)),
    "pfedgate-0.5": ((0.8728, 0.8115), (0.7407, 0.6421)),
    "pfedgate-0.3": ((0.8709, 0.8252), (0.7365, 0.6439)),
}
ON_CIFAR = {"ditto": 0.7314, "fedmask": 0.7054}
"""Printed for cifar-10 only (fedmask: table 13, for table 1 repeats FedEM's cell)."""
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
SMALL = "lenet5"
EXCERPT, CLIENTS, ROUNDS, BATCH = 2000, 10, 60, 40
"""These are for `quick`."""
SEEDS = (1, 2, 3)
SOME: dict[str, Any] = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
"""The authors' code as it comes, at density 0.5, but for where the gate starts."""
STARTS = {True: 3.0, False: 0.0}
"""`quick` takes too few steps for the paper's start; it is a row of its own there."""
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

    A `study` has the first rate of the grid under `quick`, and one seed unless clients join in it.
    """

    name: str
    method: str
    options: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    study: bool = False
    rare: bool = False
    only_quick: bool = False


@PAPERS.add
def pfedgate(quick: bool) -> Paper:
    """The experiments of the pFedGate paper, at a laptop's length or whole."""
    drawings = {f"pfedgate-dendrogram-{data}.png": _dendrogram(data) for data in MODELS}
    return Paper(
        "pFedGate: Efficient Personalized Federated Learning via Sparse Model-Adaptation",
        list(_cases(quick)),
        list(_claims(quick)),
        drawings={**drawings, "pfedgate-masks.md": _masks_table},
        extra=_server,
        tables={"Means weighted by the clients' sizes, as the paper has them, and bottom deciles": _weighted},
    )


def _cases(quick: bool) -> Iterator[Case]:
    if quick:
        yield from _leaf()
    for number, data in enumerate(MODELS):
        if quick and data == "cifar-10":
            continue
        for place, row in enumerate(_rows()):
            if row.rare if quick else row.only_quick:
                continue
            for seed in SEEDS[: 1 if quick and row.study and "new_clients" not in row.more else None]:
                name = f"{data}-{row.name}"
                printed = TABLE_1.get(row.name, ((None, None),) * 2)[number][0]
                if data == "cifar-10":
                    printed = ON_CIFAR.get(row.name, printed)
                cost = 1e4 * number + 1e3 * seed + place + (500 if row.study else 0)
                settings, grid = _settings(quick, data, row, seed), _grid(quick, row)
                yield Case(f"{name}-{seed}", f"{data}, {settings['model']}", settings, printed, cost, name, grid)


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
        settings = _settings(True, "fashion-mnist", row, 1) | {
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
    yield TableRow("pfedgate-0.5-closed", "pfedgate", {**SOME, "gate_start": 0.0}, only_quick=True)
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
    yield TableRow("pfedgate-mixed", "pfedgate", {**SOME, "density": (0.5, 0.1), "split": "paper"}, study=True)
    yield TableRow("pfedgate-0.5-channels", "pfedgate", {**SOME, "split": "channel"}, study=True)
    yield TableRow("pfedgate-0.5-two-paths", "pfedgate", {**SOME, "paths": "two"}, study=True)
    yield TableRow("pfedgate-0.5-exact", "pfedgate", {**SOME, "knapsack": "exact"}, study=True)
    sampled = {"schedule": {"sample": 0.2}}
    yield TableRow("pfedgate-0.5-20%", "pfedgate", SOME, sampled, study=True)
    yield TableRow("fedavg-20%", "fedavg", {}, sampled, study=True)
    for blocks in (2, 10):
        yield TableRow(f"pfedgate-0.5-blocks-{blocks}", "pfedgate", {**SOME, "blocks": blocks}, study=True)
    for epochs in (2, 4, 8):
        more = {"epochs": epochs}
        yield TableRow(f"pfedgate-0.5-epochs-{epochs}", "pfedgate", SOME, more, study=True, rare=True)
    for alpha in (0.1, 0.01):
        skewed = {"partition": f"dirichlet-classes:{alpha}"}
        yield TableRow(f"pfedgate-1-alpha-{alpha}", "pfedgate", {**SOME, "density": 1.0}, skewed, study=True, rare=True)
    yield TableRow("pfedgate-0.3-repo", "pfedgate", {**SOME, "density": 0.3, "ste": "repo"}, study=True, rare=True)
    yield TableRow("pfedgate-0.5-one-by-one", "pfedgate", {**SOME, "test_batch": 1}, study=True, rare=True)


def _grid(quick: bool, row: TableRow) -> Grid | None:
    """The rates among which validation images choose; nothing for a study under `quick`."""
    if quick and row.study:
        return None
    factor = 10 if row.method in PLAIN else 1
    rates = tuple(round(factor * rate, 4) for rate in RATES)
    return Grid("training.lr", rates, 20 if quick else 50, point="post", validation=0.25)


def _settings(quick: bool, data: str, row: TableRow, seed: int) -> dict[str, Any]:
    options, more = dict(row.options), dict(row.more)
    if row.method == "pfedgate":
        density = options["density"]
        usual = GATE_RATES[data][0.5 if isinstance(density, tuple) else density]
        options = {"gate_start": STARTS[quick], **options, "gate_lr": 0.1 if quick else usual}
    if row.method == "fedmd":
        options |= {"public": PUBLIC[data], "align": 5000}
    training: dict[str, Any] = {
        "batch": BATCH if quick else 128,
        "momentum": 0.0 if row.method in PLAIN else 0.9,
        "weight_decay": 5e-4,
        "clip": 10.0,
        "drops": [0.75],
        "epochs": more.pop("epochs", 1),
    }
    if _grid(quick, row) is None:
        training["lr"] = RATES[0] * (10 if row.method in PLAIN else 1)
    return {
        "method": row.method,
        "data": excerpt(data, EXCERPT) if quick else data,
        "columns": AS_IT_IS if quick else {},
        "model": SMALL if quick else MODELS[data],
        "clients": CLIENTS if quick else 100,
        "partition": "dirichlet-classes:0.4",
        "rounds": ROUNDS if quick else 400,
        "seed": seed,
        "options": options,
        "training": training,
        "split": {"use": "pooled", "test": 0.2, "validation": 0.25},
        "evaluation": {"every": 0 if quick else 50, "post": "participants", "ft": row.name == "fedavg"},
        **more,
    }


WHOLE = "`sparsona reproduce pfedgate`: about 250 CPU hours"


def _claims(quick: bool) -> Iterator[Claim]:
    rest = "`sparsona reproduce pfedgate --quick`: three CPU minutes a run" if quick else WHOLE
    for data in MODELS if not quick else ("fashion-mnist",):

        def of(*names: str, data: str = data) -> tuple[str, ...]:
            return tuple(f"{data}-{name}" for name in names)

        rivals = [name for name in BASELINES if not quick or name not in RARE]
        for point in ("pre", "post"):
            for what, read_by in (("weighted mean", by_size), ("bottom decile", bottom)):
                yield Claim(
                    f"C1: {data}: density 0.3 above all baselines of this table, {what}, `{point}`",
                    above(*of("pfedgate-0.3", *rivals), point=point, of=read_by),
                    rest,
                )
        whole, half, third, few, other = (
            At(row, "post", by_size)
            for row in of(
                "pfedgate-1",
                "pfedgate-0.5",
                "pfedgate-0.3",
                "pfedgate-0.5-20%",
                "pfedgate-0.5-closed" if quick else "pfedgate-0.5-open",
            )
        )
        zero, three = (other, half) if quick else (half, other)
        yield Claim(
            f"C2: {data}: from density 1 to 0.3 at most 2.5 points are lost, weighted, `post`",
            loses(whole, third, 0.025),
            rest,
        )
        yield Claim(
            f"C3: {data}: 20 % participation costs less than a point, weighted, `post`", loses(half, few, 0.01), rest
        )
        for name in ABLATIONS:
            yield Claim(
                f"C4: {data}: the whole gate above {name}, weighted, `post`"
                f" (paper, EMNIST: {PRINTED['']} and {PRINTED[name]})",
                above(*of("pfedgate-0.5", f"pfedgate-0.5-{name}"), point="post", of=by_size),
                rest,
            )
        yield Claim(
            f"C5: {data}: five blocks a tensor above two, weighted, `post`",
            above(*of("pfedgate-0.5", "pfedgate-0.5-blocks-2"), point="post", of=by_size),
            rest,
        )
        yield Claim(
            f"C5: {data}: ten blocks a tensor gain less than a point on five, weighted, `post`",
            loses(At(of("pfedgate-0.5-blocks-10")[0], "post", by_size), half, 0.01),
            rest,
        )
        for epochs in (1, 5, 10):
            (run,) = of(f"pfedgate-0.5-new-{epochs}")
            yield Claim(
                f"C6: {data}: new clients are less than a point behind, `post`, epochs: {epochs}",
                loses(At(run, "post"), At(run, "post", newcomers), 0.01),
                rest,
            )
            yield Claim(
                f"C6: {data}: new clients are less far behind than FedAvg's, `post`, epochs: {epochs}",
                above(*of("fedavg-new", f"pfedgate-0.5-new-{epochs}"), point="post", of=lag),
                rest,
            )
        yield Claim(
            f"{data}: the paper's start (0) is not below an open one (3), weighted, `post`",
            loses(three, zero, 0.0),
            rest,
        )
        yield Claim(
            f"{data}: HeteroFL's own-label mask at the test is worth something, weighted, `post`",
            above(*of("heterofl", "heterofl-all-labels"), point="post", of=by_size),
            rest,
        )
        yield Claim(
            f"C7: {data}: the global model alone is at least 7 points below the personal ones, density 0.5, `post`",
            exceeds(half, At(half.row, "pre", extra("server_weighted")), 0.07),
            rest,
        )
        yield Claim(f"C10: {data}: two thirds of the model go up at density 0.5", _sent(half.row), rest)
        if quick:
            for density in ("0.5", "1"):
                zero, three = (At(f"leaf-{density}-start-{start}", "post", by_size) for start in (0, 3))
                yield Claim(
                    f"leaf-cnn, density {density}: the paper's start (0) not below an open one (3), weighted, `post`",
                    loses(three, zero, 0.0),
                    rest,
                )
            yield Claim(
                "leaf-cnn, density 0.5: the ReLU on the authors' outputs costs accuracy, weighted, `post`",
                above("leaf-0.5-start-0", "leaf-0.5-start-0-relu", point="post", of=by_size),
                rest,
            )
        for rival in ("fedavg", "local"):
            yield Claim(
                f"against it: {data}: `{rival}` at `post` is above pFedGate 0.5 at `post`, weighted",
                above(*of(rival, "pfedgate-0.5"), point="post", of=by_size),
                rest,
            )
        yield Claim(
            f"against it: {data}: FedAvg fine-tuned (`ft`) is above pFedGate 0.5 at `post`, weighted",
            above(*of("fedavg", "pfedgate-0.5"), point="ft", other_point="post", of=by_size),
            rest,
        )
        yield Claim(
            f"C8: {data}: 1, 2 and 4 local epochs are within a point, `post`",
            within(0.01, half.row, *of("pfedgate-0.5-epochs-2", "pfedgate-0.5-epochs-4"), point="post"),
            WHOLE,
        )
        yield Claim(
            f"C8: {data}: 8 local epochs are at least a point below one (paper: 2.5), weighted, `post`",
            exceeds(half, At(of("pfedgate-0.5-epochs-8")[0], "post", by_size), 0.01),
            WHOLE,
        )
        yield Claim(
            f"C9: {data}: alpha from 0.4 to 0.01 costs at most 2.5 points at density 1, weighted, `post`",
            loses(whole, At(of("pfedgate-1-alpha-0.01")[0], "post", by_size), 0.025),
            WHOLE,
        )
    for model in MODELS.values():
        for what, most in (("time", 0.72), ("memory", 0.66)):
            yield Claim(
                f"C11: {model}: a step at density 0.3 takes at most {most} of FedAvg's {what}, batch 128",
                _measured(f"{MEASURED}step-{model}", what, most),
                "`python benchmarks/pfedgate.py --batches 128`: two CPU minutes",
            )
    yield Claim(
        "Table 1 on EMNIST and FEMNIST",
        never("the data are not on this machine"),
        "about 300 CPU hours each, once `sparsona data get emnist` or `femnist` has run",
    )


def _sent(row: str) -> Check:
    """Whether between 0.6 and 0.75 of the model's numbers go up in a client's turn."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        own = runs.get(row)
        if not own:
            return None
        shares = [
            run["paper_bytes"]["up"] / (4 * run["weights"] * run["clients"] * run["rounds"]) for run in own.values()
        ]
        return 0.6 < min(shares) <= max(shares) < 0.75, ", ".join(f"{share:.3f}" for share in shares)

    return fact(test, row)


def _measured(row: str, what: str, most: float) -> Check:
    """Whether a share that `benchmarks/pfedgate.py` has measured is at most so much. It rounds to hundredths."""

    def test(runs: Runs) -> tuple[bool, str] | None:
        found = [extra(what)(run, "") for run in runs.get(row, {}).values()]
        return None if not found or found[0] is None else (found[0] <= most, f"{found[0]:.2f}")

    return fact(test, row)


def _server(folder: RunDirectory, prepared: Prepared) -> dict[str, float]:
    return server_scores(folder, prepared, ServerState) if prepared.experiment.method == "pfedgate" else {}


def _weighted(runs: Runs) -> str:
    columns = (
        "row",
        "weighted, `pre`",
        "`post`",
        "bottom decile, `pre`",
        "`post`",
        "validation, `post`",
        "new, `post`",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row, own in runs.items():
        if row.startswith(MEASURED):
            continue
        cells = [
            spread(list(values(runs, row, point, by).values())) for by in (by_size, bottom) for point in ("pre", "post")
        ]
        checked = [run["validation"]["post"] for run in own.values() if "post" in run.get("validation", {})]
        new = list(values(runs, row, "post", newcomers).values())
        lines.append(f"| {row} | {' | '.join(cells)} | {spread(checked)} | {spread(new)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def gates(run: Path) -> dict[str, Gated]:
    """The clients' models of a finished run."""
    files = sorted((run / "models").glob("*.safetensors"))
    return {file.stem: unpack(file.read_bytes(), Gated) for file in files}


def _dendrogram(data: str) -> Any:
    def draw(runs: Path, to: Path) -> bool:
        """Ward's clusters of the clients by the scales that their gates give to the blocks: the paper's figure 4."""
        from matplotlib.figure import Figure
        from scipy.cluster.hierarchy import dendrogram, linkage

        folder = runs / f"{data}-pfedgate-0.5-1"
        if not (folder / "summary.json").exists():
            return False
        found = gates(folder)
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
