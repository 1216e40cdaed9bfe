"""A run in a notebook: one line, or a small page with its scores and its curve."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sparsona.report.console import COLUMNS, share, size
from sparsona.runs.records import RoundReport
from sparsona.words import counted

WIDTH, HEIGHT = 420, 120


def one_line(summary: Mapping[str, Any]) -> str:
    """Return the method, the data, the rounds, the scores and the bytes of a run."""
    metric = summary["metric"]
    scores = [f"{point} {share(found['mean'], metric)}" for point, found in summary[metric].items()]
    sent = size(summary["bytes"]["up"] + summary["bytes"]["down"])
    state = "" if summary.get("finished", True) else ", not finished"
    head = f"{summary['method']} on {summary['data']}, {counted(summary['rounds'], 'round')}{state}"
    return ", ".join([head, f"{metric} {', '.join(scores)}" if scores else "not measured", sent])


def result_page(summary: Mapping[str, Any], history: Sequence[RoundReport]) -> str:
    """Return HTML with the scores of all points, and the mean score over the sent bytes."""
    metric = summary["metric"]
    head = "".join(f"<th>{escape(label)}</th>" for label in ("", *(label for _, label in COLUMNS)))
    rows = [
        f"<tr><td>{point}</td>{''.join(f'<td>{share(found.get(key), metric)}</td>' for key, _ in COLUMNS)}</tr>"
        for point, found in summary[metric].items()
    ]
    table = f"<table><tr>{head}</tr>{''.join(rows)}</table>"
    return f"<p>{escape(one_line(summary))}</p>{table}{_curve(history, metric)}"


def _curve(history: Sequence[RoundReport], metric: str) -> str:
    """Return an SVG of the mean score at `pre` over the MB sent; empty with fewer than two evaluations."""
    sent, points = 0, []
    for report in history:
        sent += report.up.total + report.down.total
        score = report.scores["pre"]["mean"] if "pre" in report.scores else None
        if score is not None and math.isfinite(score):
            points.append((sent / 1e6, score))
    if len(points) < 2:
        return ""
    (left, right), low, high = (points[0][0], points[-1][0]), *(pick(s for _, s in points) for pick in (min, max))
    across, up = (right - left) or 1.0, (high - low) or 1.0
    line = " ".join(f"{(x - left) / across * WIDTH:.1f},{HEIGHT - (y - low) / up * HEIGHT:.1f}" for x, y in points)
    text = f"{escape(metric)}, pre: {share(low, metric)} to {share(high, metric)}, over {left:.2f} to {right:.2f} MB"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{text}">'
        f'<polyline points="{line}" fill="none" stroke="currentColor"/></svg><p>{text}</p>'
    )
