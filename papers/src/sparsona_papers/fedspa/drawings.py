"""FedSpa's figures 1, 3 and 4, from the directories of quick runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparsona.report.curves import curve
from sparsona_papers._differences import Summary, score
from sparsona_papers._runs import finished
from sparsona_papers.fedspa.plan import METHODS, MODELS, SETTINGS, SWEEP, cases, name_of

COLOURS = dict(
    zip(METHODS, ("grey", "tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:pink", "tab:red"), strict=True)
)


def _megabytes(summary: Summary) -> float:
    return float(summary["bytes"]["up"] + summary["bytes"]["down"]) / 1e6


def draw_communication(runs: Path, to: Path) -> bool:
    """Figure 1: accuracy over the bytes that really travelled, with the sparsity at each of FedSpa's points."""
    done = finished(cases("quick"), runs)
    grid = [(d, point) for d in MODELS if name_of(d, "0.3", "fedspa-dst") in done for point in ("pre", "post")]

    def draw(axes: Any, data: str, point: str) -> None:
        for label in METHODS:
            found = done.get(name_of(data, "0.3", label))
            if found is not None:
                axes.plot(_megabytes(found), score(found, point), "o", color=COLOURS[label], label=label)
        swept = {0.5: "fedspa-dst", **{s: f"sparsity-{s:g}" for s in SWEEP}}
        points = {s: done.get(name_of(data, "0.3", name)) for s, name in sorted(swept.items())}
        known = {s: (_megabytes(f), score(f, point)) for s, f in points.items() if f is not None}
        axes.plot(*zip(*known.values(), strict=True), "-", color=COLOURS["fedspa-dst"], marker=".")
        for sparsity, where in known.items():
            axes.annotate(f"{sparsity:g}", where, (0, 5), textcoords="offset points", ha="center", fontsize=8)
        axes.set_xlabel("MB sent, up and down")

    return _draw(grid, draw, to)


def draw_rounds(runs: Path, to: Path) -> bool:
    """Figure 3: accuracy of the clients' models over the rounds."""
    done = finished(cases("quick"), runs)
    grid = [(data, setting) for data in MODELS for setting in SETTINGS if name_of(data, setting, "fedspa-dst") in done]

    def draw(axes: Any, data: str, setting: str) -> None:
        for label in METHODS:
            if name_of(data, setting, label) in done:
                axes.plot(*curve(runs / name_of(data, setting, label), "pre"), color=COLOURS[label], label=label)
        axes.set_xlabel("round")

    return _draw(grid, draw, to)


def draw_sparsity(runs: Path, to: Path) -> bool:
    """Figure 4: FedSpa (DST) at different sparsities over the rounds."""
    done = finished(cases("quick"), runs)
    grid = [(data, "0.3") for data in MODELS if name_of(data, "0.3", "sparsity-0.2") in done]

    def draw(axes: Any, data: str, setting: str) -> None:
        for sparsity in sorted((*SWEEP, 0.5)):
            name = name_of(data, setting, "fedspa-dst" if sparsity == 0.5 else f"sparsity-{sparsity:g}")
            if name in done:
                axes.plot(*curve(runs / name, "pre"), label=f"sparsity {sparsity:g}")
        axes.set_xlabel("round")

    return _draw(grid, draw, to)


def _draw(grid: Sequence[tuple[str, str]], draw: Callable[[Any, str, str], None], to: Path) -> bool:
    """One panel a cell of `grid`; nothing where there is none."""
    from matplotlib.figure import Figure

    if not grid:
        return False
    figure = Figure(figsize=(1 + 3.6 * len(grid), 3.4), layout="constrained")
    for axes, cell in zip(figure.subplots(1, len(grid), squeeze=False)[0], grid, strict=True):
        draw(axes, *cell)
        axes.set_title(f"{cell[0]}, {cell[1]}", fontsize=10)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("mean test accuracy")
    figure.axes[-1].legend(fontsize=7)
    figure.savefig(to, dpi=120)
    return True
