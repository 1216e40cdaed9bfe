"""Output in the terminal: progress, closing tables, data sets and partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sparsona.data.dataset import Indices
from sparsona.metrics._named import in_percent, known
from sparsona.runs.records import RoundReport
from sparsona.words import counted


def size(count: float) -> str:
    """Return a number of bytes, for people.

    >>> size(999), size(1_500_000)
    ('999 B', '1.50 MB')
    """
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:.2f} {unit}"
    return f"{count:.0f} B"


def share(value: float | None, metric: str) -> str:
    """Return a score as text: accuracy and other shares in per cent, others as they are."""
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if in_percent(metric) else f"{value:.4g}"


class RoundProgress:
    """A bar with the last score, the bytes so far and the time left. Without a terminal, one line per round."""

    def __init__(self, console: Console, title: str, rounds: int, metric: str, quiet: bool) -> None:
        self._metric = metric
        self._bytes = 0
        self._score = ""
        self._console, self._title, self._rounds = console, title, rounds
        self._plain = not quiet and not console.is_terminal
        self._began, self._first = time.monotonic(), 0
        self._progress = Progress(
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=rounds, note="")

    def __enter__(self) -> RoundProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, done: int) -> None:
        """Note that the run continues after `done` rounds."""
        self._began, self._first = time.monotonic(), done
        self._progress.update(self._task, completed=done)

    def advance(self, report: RoundReport) -> None:
        """Note a completed round."""
        self._bytes += report.up.total + report.down.total
        if "pre" in report.scores:
            self._score = f"{self._metric} {share(report.scores['pre']['mean'], self._metric)}"
        self._progress.update(self._task, advance=1, note=f"{self._score}  {size(self._bytes)}")
        if self._plain:
            pace = (time.monotonic() - self._began) / (report.round - self._first)
            parts = [f"{self._title}: round {report.round}/{self._rounds}", self._score, size(self._bytes)]
            left = f"{pace * (self._rounds - report.round):.0f} s left"
            self._console.print(", ".join(filter(None, [*parts, left])), soft_wrap=True, markup=False, highlight=False)


COLUMNS = (("mean", "mean"), ("pooled", "pooled rows"), ("bottom_decile", "bottom decile"), ("worst", "worst"))


def closing(summary: Mapping[str, Any]) -> Table:
    """Return the closing table of a run, with one row per point and metric."""
    metric = summary["metric"]
    title = f"{summary['method']} on {summary['data']}: {metric} after {counted(summary['rounds'], 'round')}"
    table = Table(title=title, title_justify="left")
    table.add_column("point", no_wrap=True)
    for _, label in COLUMNS:
        table.add_column(label, justify="right")
    rows = [(metric, point, values) for point, values in summary[metric].items()]
    rows += [(metric, f"{point}, picked: round {pick['round']}", pick) for point, pick in summary["picked"].items()]
    others = summary.get("metrics", [metric])[1:]
    rows += [(other, f"{other}, {point}", values) for other in others for point, values in summary[other].items()]
    if "constant" in summary:
        rows.append((metric, "constant answer", summary["constant"]))
    if "new_clients" in summary:
        new = summary["new_clients"]
        joined = counted(new["count"], "new client")
        rows += [(metric, f"{point}, {joined}", values) for point, values in new[metric].items()]
    if checked := summary.get("validation", {}):
        for point, value in checked.items():
            table.add_row(f"{point}, validation rows", share(value, metric))
    for one, label, values in rows:
        held = {"pooled": None if _is_mean(one) is False else values["weighted"], **values}
        table.add_row(label, *(share(held[key], one) for key, _ in COLUMNS))
    table.caption, table.caption_justify = "; ".join(_left_out(summary)), "left"
    return table


def _is_mean(metric: str) -> bool | None:
    """True if a metric is a mean over rows, so that scores weighted by rows are the score of all rows together."""
    found = known(metric)
    return None if found is None else found.additive


def _left_out(summary: Mapping[str, Any]) -> list[str]:
    """Return which clients are left out of the means, and why."""
    notes = []
    if "too_few_test_rows" in summary:
        few = summary["too_few_test_rows"]
        small = len(few["clients"])
        have = "has" if small == 1 else "have"
        notes.append(f"without {counted(small, 'client')} that {have} fewer than {few['fewest']} test rows")
    for metric, found in summary.get("undefined", {}).items():
        names = found["clients"]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        who = f"{counted(len(names), 'client')} ({', '.join(names[:3])}{more})"
        notes.append(f"no {metric} for {who}: {found['reason']}")
    return notes


def traffic(summary: Mapping[str, Any]) -> str:
    """Return one line on the traffic, time and memory of a run."""
    sent, paper = summary["bytes"], summary["paper_bytes"]
    simulated = f"{summary['simulated_seconds']:.0f} s simulated; " if summary["simulated_seconds"] else ""
    return (
        f"sent: {size(sent['up'])} up, {size(sent['down'])} down{_agreed(sent)} "
        f"(values only, as papers count: {size(paper['up'])} up, {size(paper['down'])} down); "
        f"{simulated}{summary['seconds']:.1f} s, {summary['peak_rss_mb']:.0f} MB of memory{_spent(summary)}"
    )


def _spent(summary: Mapping[str, Any]) -> str:
    privacy = summary.get("privacy")
    return f"; privacy: epsilon {privacy['largest']:.2f} spent, delta {privacy['delta']:g}" if privacy else ""


def _agreed(sent: Mapping[str, Any]) -> str:
    agreed = sum(sent.get("agreement", {}).values())
    return f", {size(agreed)} of it to agree on the columns" if agreed else ""


def breakdown(summary: Mapping[str, Any]) -> Table:
    """Return a table of bytes by direction and kind; positions are compared with their entropy bound."""
    table = Table(title=f"{summary['method']} on {summary['data']}: bytes sent", title_justify="left")
    for label in ("", "header", "positions", "values", "total", "of bound", "values only"):
        table.add_column(label, justify="left" if not label else "right")
    for way in ("up", "down"):
        parts, total = summary["bytes"]["parts"][way], summary["bytes"][way]
        bound = parts.get("bound", 0.0)
        table.add_row(
            way,
            *(size(parts.get(kind, 0)) for kind in ("header", "positions", "values")),
            size(total),
            f"{parts.get('positions', 0) / bound:.4f}" if bound else "-",
            size(summary["paper_bytes"][way]),
        )
    return table


SHADES = " ░▒▓█"


def _short(count: int) -> str:
    """Return a count below a million in at most four characters.

    >>> _short(640), _short(2744), _short(27_440)
    ('640', '2.7k', '27k')
    """
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 9950 else f"{count / 1000:.0f}k"


def class_table(counts: Mapping[str, Indices], names: Sequence[str], most: int = 40) -> Table:
    """Return a table of training samples by client and class; a cell's shade is its share of the client's samples."""
    table = Table(title="training samples by client and class", title_justify="left", box=None, padding=(0, 0, 0, 1))
    table.add_column("client", no_wrap=True)
    table.add_column("samples", justify="right", no_wrap=True)
    wide = len(names) <= 12
    for label in range(len(names)) if wide else ("classes",):
        table.add_column(str(label), justify="right" if wide else "left", no_wrap=wide)
    for client in list(counts)[:most]:
        row = counts[client]
        total = int(row.sum())
        shades = [SHADES[min(4, -(-4 * int(n) // max(total, 1)))] for n in row]
        cells = (
            [f"{_short(int(n))}{shade}" for n, shade in zip(row, shades, strict=True)] if wide else ["".join(shades)]
        )
        table.add_row(client, str(total), *cells)
    notes = [f"and {len(counts) - most} more clients"] if len(counts) > most else []
    if list(names) != [str(label) for label in range(len(names))] and wide:
        notes.append(", ".join(f"{label} {name}" for label, name in enumerate(names)))
    table.caption = "; ".join(notes)
    return table
