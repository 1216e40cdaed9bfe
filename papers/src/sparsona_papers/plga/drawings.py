"""PLGA's drawings, from the directories of its runs: figure 2, and the race on phones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sparsona.files import write_atomically
from sparsona.report import curves
from sparsona.runs.directory import RunDirectory
from sparsona_papers._runs import finished
from sparsona_papers.plga.plan import LENGTHS, MAIN, cases, orders_of


def draw_rounds(runs: Path, to: Path) -> bool:
    """Figure 2: the clients' mean accuracy at `pre` over the rounds, with the first seed; PLGA's is of its mixtures."""
    from matplotlib.figure import Figure

    panels = {}
    for data, order in [(one, order) for one in LENGTHS for order in orders_of(one)]:
        folders = {name: runs / f"{data}-{order}-{name}-1" for name in MAIN}
        done = {name: folder for name, folder in folders.items() if RunDirectory(folder).summary_file.exists()}
        if "plga" in done:
            panels[f"{data}, {order}"] = {name: curves.curve(folder, "pre") for name, folder in done.items()}
    if not panels:
        return False
    figure = Figure(figsize=(1 + 3.6 * len(panels), 3.4), layout="constrained")
    for axes, (title, found) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for name, curve in found.items():
            axes.plot(*curve, label=name)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("round")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("mean test accuracy, `pre`")
    figure.axes[0].legend(fontsize=7)
    figure.savefig(to, dpi=120)
    return True


def at_second(found: Sequence[curves.Mark], second: float) -> float | None:
    """The score that was measured last at or before `second`; None before the first, and for a run that has ended."""
    until = [mark.score for mark in found if mark.seconds <= second]
    return until[-1] if until and found[-1].seconds >= second else None


def equal_seconds(found: Mapping[str, Sequence[curves.Mark]]) -> list[float]:
    """Return the seconds at which a run ends while another continues; all runs have reached the first of them."""
    ends = sorted(curve[-1].seconds for curve in found.values())
    return list(dict.fromkeys(ends[:-1]))


def at_equal_seconds(runs: Path, to: Path) -> bool:
    """The scores of all runs on phones at the same seconds."""
    found = _on_phones(runs)
    seconds = equal_seconds(found)
    lines = [f"| run | {' | '.join(f'{second:.1f} s' for second in seconds)} |", "|---" * (len(seconds) + 1) + "|"]
    for name, curve in found.items():
        scores = [at_second(curve, second) for second in seconds]
        lines.append(f"| {name} | {' | '.join('-' if s is None else f'{100 * s:.2f}' for s in scores)} |")
    write_atomically(to, "\n".join(lines) + "\n")
    return bool(seconds)


def draw_phones(runs: Path, to: Path) -> bool:
    """Accuracy over simulated seconds, and over bytes."""
    found = _on_phones(runs)
    if found:
        curves.draw(found, to, "pre", ("seconds", "bytes"), "test accuracy")
    return bool(found)


def _on_phones(runs: Path) -> dict[str, list[curves.Mark]]:
    """The curves of the finished runs on phones, by row."""
    done = [name for name in finished(cases("quick"), runs) if name.startswith("phones-")]
    return {name.removeprefix("phones-").rpartition("-")[0]: curves.marks(runs / name, "pre") for name in done}
