"""The chart of a page: its claims' differences with their 95 % intervals, coloured by verdict."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COLOURS = {"yes": "#00796b", "no": "#c62828", "within noise": "#757575"}
INTERVAL = re.compile(r"([+-]\d+\.\d+) ± (\d+\.\d+)")
"""A difference and half of its interval, as evidence has them."""


@dataclass(frozen=True)
class Bar:
    """A claim, its verdict, and the interval of the difference that decides it."""

    claim: str
    verdict: str
    value: float
    half: float


def bars(table: Sequence[str]) -> list[Bar]:
    """Read the rows of a table of verdicts; rows without a difference are left out.

    >>> bars(["| A above B | yes | day: +0.0948 ± 0.0192, 3 seeds |", "| A saves bytes | yes | 0.1 of the other's |"])
    [Bar(claim='A above B', verdict='yes', value=0.0948, half=0.0192)]
    """
    found = []
    for row in table:
        cells = [cell.strip() for cell in row.strip().strip("|").split(" | ")]
        if len(cells) == 3 and cells[1] in COLOURS and (number := INTERVAL.search(cells[2])):
            found.append(Bar(cells[0].replace("`", ""), cells[1], float(number[1]), float(number[2])))
    return found


def draw_bars(found: Sequence[Bar], to: Path) -> None:
    """Draw one line per claim: a dot for the difference in points, a bar for its interval."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    labels = [textwrap.fill(bar.claim, 62) for bar in found]
    height = sum(0.16 * label.count("\n") + 0.34 for label in labels) + 0.8
    with rc_context({"svg.hashsalt": "sparsona"}):
        figure = Figure(figsize=(9, height), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color="black", linewidth=0.8)
        for y, bar in enumerate(found):
            points = (100 * bar.value, 100 * bar.half)
            axes.errorbar(points[0], y, xerr=points[1], fmt="o", capsize=3, color=COLOURS[bar.verdict])
        for word in dict.fromkeys(bar.verdict for bar in found):
            axes.plot([], [], "o-", color=COLOURS[word], label=word)
        axes.set_yticks(range(len(found)), labels, fontsize=7)
        axes.invert_yaxis()
        axes.set_xscale("symlog", linthresh=5)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("difference in points, with its 95 % interval (the scale is logarithmic beyond 5)", fontsize=8)
        axes.grid(axis="x", alpha=0.3)
        figure.legend(loc="outside upper right", ncols=3, fontsize=8, frameon=False)
        to.parent.mkdir(exist_ok=True)
        figure.savefig(to, metadata={"Date": None})
