"""FedPSE's studies of EWA, DPS and the correlation distance, from the directories of quick runs; its curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sparsona.methods.fedpse import ServerState
from sparsona.report.curves import draw, marks
from sparsona_papers._differences import score
from sparsona_papers._runs import finished, server_state
from sparsona_papers.fedpse.plan import LAMBDAS, METHODS, cases, row_of

VARIANCE = {1.0: 2.0e-3, 0.5: 4.0e-4, 0.0: 2.9e-4}
"""Table 3: the variance of d over ten clients on Fashion-MNIST."""


def draw_ewa(runs: Path, to: Path) -> bool:
    """FedPSE with element-wise aggregation and without."""
    return _draw_switch(runs, to, "no-ewa", "EWA", "mean over those who sent", "zeros count (no EWA)")


def draw_dps(runs: Path, to: Path) -> bool:
    """FedPSE with a personal downlink and without."""
    return _draw_switch(runs, to, "no-dps", "DPS", "personal choice", "same for all (no DPS)")


def _draw_switch(runs: Path, to: Path, study: str, what: str, on: str, off: str) -> bool:
    """FedPSE with and without one of its parts over lambda, at both points."""
    from matplotlib.figure import Figure

    done = finished(cases("quick"), runs)
    names = {on: [row_of(r, "fedpse") for r in LAMBDAS], off: [f"{row_of(r, 'fedpse')}-{study}" for r in LAMBDAS]}
    if any(name not in done for group in names.values() for name in group):
        return False
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, point in zip(figure.subplots(1, 2, sharey=True), ("pre", "post"), strict=True):
        for (label, group), style in zip(names.items(), ("o-", "s--"), strict=True):
            axes.plot(LAMBDAS, [score(done[name], point) for name in group], style, label=label)
        axes.set_title(f"{what}, `{point}`")
        axes.set_xlabel("lambda")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("mean test accuracy")
    figure.axes[0].legend()
    figure.savefig(to, dpi=120)
    return True


def distances(runs: Path) -> dict[float, Any]:
    """The clients' correlation distances in the last round, by lambda, on Fashion-MNIST with ten clients."""
    folders = {ratio: runs / row_of(ratio, "fedpse") for ratio in LAMBDAS}
    if any(not (folder / "summary.json").exists() for folder in folders.values()):
        return {}
    return {r: np.array(list(server_state(folder, ServerState).distance.values())) for r, folder in folders.items()}


def draw_distance(runs: Path, to: Path) -> bool:
    """Each client's d by lambda, with mean and variance beside the paper's variance."""
    from matplotlib.figure import Figure

    found = distances(runs)
    if not found:
        return False
    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.subplots()
    for ratio, own in found.items():
        axes.plot([ratio] * len(own), own, "o", alpha=0.5, color="tab:blue")
        note = f"mean {own.mean():.3f}\nvariance {own.var():.1e}\n(paper {VARIANCE[ratio]:.1e})"
        axes.annotate(note, (ratio, own.max()), (0, 6), textcoords="offset points", ha="center", fontsize=7)
    axes.plot(list(found), [own.mean() for own in found.values()], "-", color="tab:blue")
    axes.set_xlabel("lambda")
    axes.set_ylabel("correlation distance d, a dot a client")
    axes.margins(x=0.2, y=0.3)
    figure.savefig(to, dpi=120)
    return True


def draw_curves(runs: Path, to: Path) -> bool:
    """The paper's figure 2: accuracy at `pre` in every round, five clients of Fashion-MNIST, lambda = 1, first seed."""
    folders = {method: runs / f"{row_of(1.0, method, 5)}-curve" for method in METHODS[1:]}
    if any(not (folder / "summary.json").exists() for folder in folders.values()):
        return False
    draw({method: marks(folder, "pre") for method, folder in folders.items()}, to, "pre", ("rounds",), "accuracy")
    return True
