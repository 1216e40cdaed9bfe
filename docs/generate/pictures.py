"""The picture of a method, drawn from a few lines of text: what the server has, what travels, what a client has.

    server  ssssssssssss  the global model w
    down    ssssssssssss  w, to everyone
    client  pppppppppppp  w_k, trained from w
    up      pppppppppppp  w_k and n_k

A line is a place (server, down, client, up), a strip of cells and a label. A cell is `s` shared, `p` the client's own,
`o` another client's, `m` a bit, `.` not there. Several lines may have one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

CELL, STRIP_STEP = 13, 34
COLOURS = {"s": "#0072B2", "p": "#E69F00", "o": "#009E73", "m": "#555555", ".": "none"}
"""Okabe and Ito's, which the colour-blind can tell apart."""
PLACES = ("server", "down", "client", "up")


@dataclass(frozen=True)
class Strip:
    """One line of a picture."""

    place: str
    cells: str
    label: str


def parse(text: str) -> list[Strip]:
    """The lines of a picture, checked."""
    strips = []
    for line in text.strip().splitlines():
        place, cells, label = line.split(maxsplit=2)
        if place not in PLACES or not set(cells) <= set(COLOURS) or len(cells) > 14:
            raise ValueError(f"a picture's line is PLACE CELLS LABEL, not {line!r}")
        strips.append(Strip(place, cells, label))
    return strips


def draw(text: str) -> str:
    """The picture as inline SVG; its text takes the page's colour."""
    strips = {place: [s for s in parse(text) if s.place == place] for place in PLACES}
    tall = {place: 14 + STRIP_STEP * max(1, len(found)) for place, found in strips.items()}
    between = max(tall["down"], tall["up"]) + 26
    top, left, width = 8, 150, 420
    below = top + tall["server"] + 20 + between
    height = below + tall["client"] + 28
    out = [f'<svg class="picture" viewBox="0 0 720 {height}" role="img" aria-label="{escape(_said(strips))}">']
    out += _box("server", left, top, width, tall["server"] + 20, strips["server"])
    out += _box("client", left, below, width, tall["client"] + 20, strips["client"])
    start, stop = top + tall["server"] + 22, below - 4
    out += _arrow(left + 70, start, stop) + _arrow(left + width - 70, stop, start)
    middle = (start + stop) / 2
    out += _strips(strips["down"], left + 58, middle - tall["down"] / 2, "end")
    out += _strips(strips["up"], left + width - 58, middle - tall["up"] / 2, "start")
    return "\n".join([*out, "</svg>"])


def _said(strips: dict[str, list[Strip]]) -> str:
    names = {"server": "the server has", "down": "down goes", "client": "the client has", "up": "up goes"}
    return "; ".join(f"{names[p]} {', '.join(s.label for s in found) or 'nothing'}" for p, found in strips.items())


def _box(name: str, x: float, y: float, width: float, height: float, strips: list[Strip]) -> list[str]:
    out = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" stroke="currentColor"/>']
    out.append(f'<text x="{x + 12}" y="{y + 18}" font-weight="bold">{name}</text>')
    return out + _strips(strips, x + width / 2, y + 20, "middle")


def _arrow(x: float, start: float, stop: float) -> list[str]:
    turn = 1 if stop > start else -1
    tip = f"{x},{stop} {x - 5},{stop - 9 * turn} {x + 5},{stop - 9 * turn}"
    return [
        f'<line x1="{x}" y1="{start}" x2="{x}" y2="{stop - 8 * turn}" stroke="currentColor" stroke-width="2"/>',
        f'<polygon points="{tip}" fill="currentColor"/>',
    ]


def _strips(strips: list[Strip], x: float, y: float, anchor: str) -> list[str]:
    """Strips below each other, with their labels under them. `x` is the right end, the middle or the left end."""
    out: list[str] = []
    for number, strip in enumerate(strips):
        line = y + number * STRIP_STEP
        width = CELL * len(strip.cells)
        begin = x - {"end": width, "middle": width / 2, "start": 0}[anchor]
        for i, cell in enumerate(strip.cells):
            out.append(
                f'<rect x="{begin + i * CELL}" y="{line}" width="{CELL - 2}" height="{CELL - 2}" rx="2" '
                f'fill="{COLOURS[cell]}" stroke="currentColor" stroke-opacity="0.35"/>'
            )
        out.append(f'<text x="{x}" y="{line + CELL + 11}" text-anchor="{anchor}">{escape(strip.label)}</text>')
    return out


LEGEND = (
    '<p class="legend"><span style="color:#0072B2">■</span> shared &nbsp; <span style="color:#E69F00">■</span> the '
    "client's own &nbsp; <span style=\"color:#009E73\">■</span> another client's &nbsp; "
    '<span style="color:#555">■</span> a bit &nbsp; □ not there</p>'
)
