"""Accuracy as it grows with rounds, bytes, simulated seconds or operations: one curve a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sparsona.errors import RunError
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord
from sparsona.runs.scores import summarise

Over: TypeAlias = Literal["rounds", "bytes", "seconds", "flops"]

LABELS: Mapping[Over, str] = {
    "rounds": "rounds",
    "bytes": "MB sent, up and down",
    "seconds": "simulated seconds",
    "flops": "operations of all clients, 10^9",
}


@dataclass(frozen=True)
class Mark:
    """All that had been spent when the clients were measured, and their mean score."""

    rounds: int
    bytes: float
    seconds: float
    flops: float
    score: float


def marks(folder: Path, point: str) -> list[Mark]:
    """The rounds of a run in which all clients were measured at `point`."""
    rounds: dict[int, list[ClientRecord]] = {}
    file = RunDirectory(folder).records
    try:
        with file.open(encoding="utf-8") as lines:
            for line in map(ClientRecord.parse, lines):
                rounds.setdefault(line.round, []).append(line)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} cannot be read ({error}): run the experiment again into another --out") from None
    scores = {n: {one.client: one.test[point] for one in own if point in one.test} for n, own in rounds.items()}
    everyone = max(map(len, scores.values()), default=0)
    found, sent, flops = [], 0, 0
    for number in sorted(rounds):
        own = rounds[number]
        sent += sum(line.up.total + line.down.total for line in own)
        flops += sum(line.flops for line in own)
        mean = summarise(scores[number], dict.fromkeys(scores[number], 1))["mean"] if scores[number] else None
        if mean is not None and math.isfinite(mean) and len(scores[number]) == everyone:
            found.append(Mark(number, sent / 1e6, max(line.clock for line in own), flops / 1e9, mean))
    return found


def along(found: Sequence[Mark], over: Over) -> tuple[list[float], list[float]]:
    """What was spent, and the mean score, for a plot."""
    return [float(getattr(mark, over)) for mark in found], [mark.score for mark in found]


def curve(folder: Path, point: str, over: Over = "rounds") -> tuple[list[float], list[float]]:
    """The same, of a run."""
    return along(marks(folder, point), over)


def draw(runs: Mapping[str, Sequence[Mark]], to: Path, point: str, overs: Sequence[Over], metric: str) -> None:
    """A panel for each of `overs`, a curve a run, by the name given to it."""
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
