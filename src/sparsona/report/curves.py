"""Mean scores over rounds, bytes, simulated seconds or operations: one curve per run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sparsona.report.measured import complete, mean_score, measurements
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import by_round

Over: TypeAlias = Literal["rounds", "bytes", "seconds", "flops"]

LABELS: Mapping[Over, str] = {
    "rounds": "rounds",
    "bytes": "MB sent, up and down",
    "seconds": "simulated seconds",
    "flops": "operations of all clients, 10^9",
}

SHOWN: tuple[Over, ...] = ("rounds", "bytes", "seconds")
"""The horizontal axes of a drawing's panels."""


@dataclass(frozen=True)
class Mark:
    """The costs up to an evaluation of the clients, and their mean score."""

    rounds: int
    bytes: float
    seconds: float
    flops: float
    score: float


def marks(folder: Path, point: str) -> list[Mark]:
    """Return the rounds of a run in which all clients were measured at `point`."""
    found = complete(measurements(by_round(RunDirectory(folder).lines())), point)
    rated = [(m, mean_score(m.test[point])) for m in found]
    return [Mark(m.round, m.bytes / 1e6, m.seconds, m.flops / 1e9, score) for m, score in rated if math.isfinite(score)]


def mean_marks(several: Sequence[Sequence[Mark]]) -> list[Mark]:
    """Return the means over several runs, at the rounds that all of them have.

    >>> mean_marks([[Mark(1, 2.0, 1.0, 1.0, 0.5), Mark(2, 4.0, 2.0, 2.0, 0.7)], [Mark(1, 4.0, 3.0, 1.0, 0.7)]])
    [Mark(rounds=1, bytes=3.0, seconds=2.0, flops=1.0, score=0.6)]
    """
    by_round = [{mark.rounds: mark for mark in found} for found in several]
    shared = sorted(set.intersection(*map(set, by_round))) if by_round else []
    out = []
    for number in shared:
        each = [found[number] for found in by_round]
        columns = zip(*((m.bytes, m.seconds, m.flops, m.score) for m in each), strict=True)
        out.append(Mark(number, *(sum(column) / len(each) for column in columns)))
    return out


def along(found: Sequence[Mark], over: Over) -> tuple[list[float], list[float]]:
    """Return the costs and the mean scores, for a plot."""
    return [float(getattr(mark, over)) for mark in found], [mark.score for mark in found]


def curve(folder: Path, point: str, over: Over = "rounds") -> tuple[list[float], list[float]]:
    """Return the costs and the mean scores of a run."""
    return along(marks(folder, point), over)


def draw(runs: Mapping[str, Sequence[Mark]], to: Path, point: str, overs: Sequence[Over], metric: str) -> None:
    """Draw a panel for each of `overs`, with one labelled curve per run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1 + 3.6 * len(overs), 3.4), layout="constrained")
    for axes, over in zip(figure.subplots(1, len(overs), squeeze=False, sharey=True)[0], overs, strict=True):
        for label, found in runs.items():
            axes.plot(*along(found, over), ".-", ms=4, label=label)
        axes.set_xlabel(LABELS[over])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel(f"mean {metric}, `{point}`")
    figure.axes[0].legend(fontsize=7)
    figure.savefig(to, dpi=120)
