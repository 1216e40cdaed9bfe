"""The charts and tables of docs/speed.md, from what benchmarks/simulation.py has kept.

    python docs/generate/speed.py

Writes docs/img/speed-*.svg, and the tables between the marks in docs/speed.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

DOCS = Path(__file__).parents[1]
KEPT, PAGE = DOCS / "speed.json", DOCS / "speed.md"
BARE, LIMIT, OURS = "(a) bare loop", "(b) the limit", "(c) sparsona "
PEERS = ("fedjax", "flwr", "pfl", "fluke")
COLOURS = {"ours": "#0072B2", "limit": "#555555", "peer": "#E69F00"}
"""Okabe and Ito's, which the colour-blind can tell apart."""
LEFT, WIDTH, BAR, STEP = 250, 360, 16, 22
MARKS = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.DOTALL)


@dataclass(frozen=True)
class Chart:
    """One picture: the works that it shows, and its title."""

    file: str
    title: str
    works: tuple[str, ...]


CHARTS = (
    Chart("speed-images.svg", "Nets of convolutions, samples per second", ("W1", "W2")),
    Chart("speed-mlp.svg", "Perceptron 784-50-10, client updates per second", ("W3",)),
    Chart("speed-small-mlp.svg", "Perceptron 64-50-10, client updates per second", ("W4",)),
)


def rates(work: dict[str, Any]) -> dict[str, float]:
    """The median rate of each row."""
    return {name: median(row["rates"]) for name, row in work["rows"].items()}


def shown(name: str) -> str:
    """The name of a row as a reader sees it.

    >>> shown("(c) sparsona fedavg --packing plain"), shown("(b) the limit")
    ('fedavg --packing plain', 'the limit')
    """
    return name.removeprefix(OURS).removeprefix("(a) ").removeprefix("(b) ")


def kind(name: str) -> str:
    """Whose row it is."""
    return "limit" if name in (BARE, LIMIT) else "ours" if name.startswith(OURS) else "peer"


def drawn(chart: Chart, kept: dict[str, Any]) -> str:
    """The chart as SVG: one bar per row, the longest as wide as the picture."""
    bars: list[str] = []
    y = 44
    for name in chart.works:
        found = {row: rate for row, rate in rates(kept[name]).items() if "inprocess" not in row}
        bars.append(f'<text x="{LEFT}" y="{y + 12}" font-weight="bold">{name}</text>')
        y += STEP
        for row, rate in found.items():
            width = WIDTH * rate / max(found.values())
            bars += [
                f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(shown(row))}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[kind(row)]}"/>',
                f'<text x="{LEFT + width + 6:.1f}" y="{y + 12}">{rate:,.0f}</text>',
            ]
            y += STEP
        y += STEP // 2
    legend = "".join(
        f'<rect x="{LEFT + 150 * n}" y="{y}" width="12" height="12" fill="{colour}"/>'
        f'<text x="{LEFT + 150 * n + 18}" y="{y + 11}">{text}</text>'
        for n, (text, colour) in enumerate(
            {"Sparsona": COLOURS["ours"], "without messages": COLOURS["limit"], "peers": COLOURS["peer"]}.items()
        )
    )
    size = f'viewBox="0 0 700 {y + 24}" font-family="sans-serif" font-size="12"'
    background = f'<rect width="700" height="{y + 24}" fill="white"/>'
    title = f'<text x="16" y="24" font-size="15" font-weight="bold">{escape(chart.title)}</text>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', background, title, *bars, legend, "</svg>\n"])


def table(name: str, work: dict[str, Any]) -> str:
    """The table of one work: rates, and their ratios to the limit and to the fastest peer."""
    found = rates(work)
    peers = [row for row in found if kind(row) == "peer"]
    fastest = max(peers, key=lambda row: found[row], default="")
    heads = [name, f"{work['unit']}/s", "from .. to", "of the limit", *([f"of {fastest}"] if fastest else []), "MB"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for row, rate in found.items():
        all_rates, mb = work["rows"][row]["rates"], work["rows"][row]["mb"]
        spread = f"{min(all_rates):,.0f} .. {max(all_rates):,.0f}" if len(all_rates) > 1 else ""
        shares = [f"{rate / found[other]:.2f}" for other in (LIMIT, fastest) if other]
        lines.append(f"| {' | '.join([shown(row), f'{rate:,.0f}', spread, *shares, f'{mb:,.0f}' if mb else ''])} |")
    return "\n".join([*lines, "", f"{name} was measured on {work['date']}: {work['machine']}."])


def page(text: str, kept: dict[str, Any]) -> str:
    """The page with its tables made anew."""
    tables = "\n\n".join(table(name, work) for name, work in kept.items())
    return MARKS.sub(lambda found: f"{found[1]}\n{tables}\n\n{found[2]}", text)


def main() -> None:
    kept = json.loads(KEPT.read_text())
    for chart in CHARTS:
        (DOCS / "img" / chart.file).write_text(drawn(chart, kept))
    PAGE.write_text(page(PAGE.read_text(), kept))


if __name__ == "__main__":
    main()
