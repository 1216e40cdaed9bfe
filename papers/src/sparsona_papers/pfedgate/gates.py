"""The gates of finished runs: a tree of the clients, and a table of kept and sent shares."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsona.chance import Chance
from sparsona.data.dataset import Indices
from sparsona.experiment import read
from sparsona.files import write_atomically
from sparsona.message import Vector
from sparsona.methods.pfedgate.gate import Gate, Gated, block_scales, ready
from sparsona.prepare import prepare
from sparsona.runs.about import read_about
from sparsona.runs.directory import RunDirectory
from sparsona.runs.names import file_stem
from sparsona.runs.state import unpack
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule


def gates(run: Path) -> dict[str, Gated]:
    """The clients' models of a finished run."""
    files = sorted((run / "models").glob("*.safetensors"))
    return {file.stem: unpack(file.read_bytes(), Gated) for file in files}


def dendrogram_of(data: str) -> Callable[[Path, Path], bool]:
    """The drawing of the tree of one data set's clients."""

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


def likeness(run: RunDirectory, chance: Chance) -> dict[str, float]:
    """Return whether clients with similar labels have similar gates: Spearman's correlation, over all pairs of clients,
    of the difference of their label shares with the distance of their gates' weights and of their scales. A gate counts
    by its movement, since each client's starts elsewhere.
    """
    from scipy.spatial.distance import pdist
    from scipy.stats import spearmanr

    clients, found = read_about(run.path).clients, gates(run.path)
    models = {name: found[file_stem(name)] for name in clients if file_stem(name) in found}
    counts = np.array([clients[name].classes for name in models], np.float64)
    unlike = pdist(counts / counts.sum(1, keepdims=True), "cityblock")
    moved = [
        (model.gate - model.design.initial(chance, name))[: FlatModule(Gate(model.design)).layout.size]
        for name, model in models.items()
    ]
    by = {"gates alike": np.stack(moved), "scales alike": np.stack([model.frozen for model in models.values()])}
    told = {what: float(spearmanr(unlike, pdist(vectors.astype(np.float64)))[0]) for what, vectors in by.items()}
    return {what: value for what, value in told.items() if np.isfinite(value)}


@dataclass(frozen=True)
class Masks:
    """The effect of a run's gates, as means over its clients.

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
        if len(share.train) < 2 or not len(share.test):
            continue  # no batch to look at: labels may be so skewed that a client has next to nothing
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


def masks_table(runs: Path, to: Path) -> bool:
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
