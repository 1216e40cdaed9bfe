"""The chart of a page: its claims' differences with their 95 % intervals, coloured by verdict."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COLOURS = {"yes": "#00796b", "no": "#c62828", "within noise": "#757575"}
INTERVAL = re.compile(r"([+-]\d+\.\d+) (?:± (\d+\.\d+)|\(([+-]\d+\.\d+) to ([+-]\d+\.\d+)\))( points)?")
"""A difference and its interval in a row's evidence: half its width, or its ends. In points, or else as a share."""


@dataclass(frozen=True)
class Bar:
    """A claim, its verdict, and the deciding difference in points, with the ends of its interval."""

    claim: str
    verdict: str
    value: float
    low: float
    high: float


def bars(table: Sequence[str]) -> list[Bar]:
    """Read the rows of a table of verdicts; rows without a difference are left out.

    >>> bars(["| A above B | yes | day: +0.5 ± 0.25, 3 seeds |", "| A saves bytes | yes | 0.1 of the other's |"])
    [Bar(claim='A above B', verdict='yes', value=50.0, low=25.0, high=75.0)]
    >>> bars(["| A above B | within noise | +1.5 (-0.5 to +2.0) points |"])
    [Bar(claim='A above B', verdict='within noise', value=1.5, low=-0.5, high=2.0)]
    """
    found = []
    for row in table:
        cells = [cell.strip() for cell in row.strip().strip("|").split(" | ")]
        if len(cells) == 3 and cells[1] in COLOURS and (match := INTERVAL.search(cells[2])):
            value, scale = float(match[1]), 1 if match[5] else 100
            half = float(match[2] or 0)
            ends = (value - half, value + half) if match[2] else (float(match[3]), float(match[4]))
            found.append(Bar(cells[0].replace("`", ""), cells[1], scale * value, scale * ends[0], scale * ends[1]))
    return found


def draw_bars(found: Sequence[Bar], to: Path, of: str = "difference in points") -> None:
    """Draw one line per claim: a dot for the difference, a bar for its interval; `of` names the axis."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    labels = [textwrap.fill(bar.claim, 62) for bar in found]
    height = sum(0.16 * label.count("\n") + 0.34 for label in labels) + 0.8
    with rc_context({"svg.hashsalt": "sparsona"}):
        figure = Figure(figsize=(9, height), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color="black", linewidth=0.8)
        for y, bar in enumerate(found):
            ends = [[bar.value - bar.low], [bar.high - bar.value]]
            axes.errorbar(bar.value, y, xerr=ends, fmt="o", capsize=3, color=COLOURS[bar.verdict])
        for word in dict.fromkeys(bar.verdict for bar in found):
            axes.plot([], [], "o-", color=COLOURS[word], label=word)
        axes.set_yticks(range(len(found)), labels, fontsize=7)
        axes.invert_yaxis()
        axes.set_xscale("symlog", linthresh=5)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(f"{of}, with its 95 % interval (the scale is logarithmic beyond 5)", fontsize=8)
        axes.grid(axis="x", alpha=0.3)
        figure.legend(loc="outside upper right", ncols=3, fontsize=8, frameon=False)
        to.parent.mkdir(exist_ok=True)
        figure.savefig(to, metadata={"Date": None})
