"""Output in the terminal: a run's closing tables, its clients, data sets and partitions, lists of names."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from sparsona.data.dataset import Indices
from sparsona.metrics import in_percent, known
from sparsona.runs.clients import ClientScores, Score, read_clients
from sparsona.runs.directory import RunDirectory
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
    return "-" if value is None else f"{100 * value:.2f} %" if in_percent(metric) else f"{value:.4g}"


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
        found = known(one)  # only of a mean over rows, the score weighted by rows is that of all rows together
        held = {"pooled": None if found is not None and not found.additive else values["weighted"], **values}
        table.add_row(label, *(share(held[key], one) for key, _ in COLUMNS))
    table.caption, table.caption_justify = "; ".join(_left_out(summary)), "left"
    return table


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
    agreement = sum(sent.get("agreement", {}).values())
    agreed = f", {size(agreement)} of it to agree on the columns" if agreement else ""
    privacy = summary.get("privacy")
    spent = f"; privacy: epsilon {privacy['largest']:.2f} spent, delta {privacy['delta']:g}" if privacy else ""
    return (
        f"sent: {size(sent['up'])} up, {size(sent['down'])} down{agreed} "
        f"(values only, as papers count: {size(paper['up'])} up, {size(paper['down'])} down); "
        f"{simulated}{summary['seconds']:.1f} s, {summary['peak_rss_mb']:.0f} MB of memory{spent}"
    )


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


def clients_table(clients: Sequence[ClientScores], metric: str, fewest: int, repeats: int = 1) -> Table:
    """Return a table of rows and scores per client, with 95 % intervals; a dash means too few test rows."""
    times = f", over {repeats} splits" if repeats > 1 else ""
    table = Table(title=f"{metric} of each client{times}", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("client", no_wrap=True)
    for label in ("train", "tested", *(f"{point} (95 % interval)" for point in ("pre", "post"))):
        table.add_column(label, justify="right", no_wrap=True)
    for one in clients[:40]:
        cells = [_cell(one.scores.get(point), metric) for point in ("pre", "post")]
        table.add_row(one.client, str(one.train), str(one.test), *cells)
    notes = [f"and {len(clients) - 40} more in clients.csv"] if len(clients) > 40 else []
    small = sum(not one.scores for one in clients)
    if small:
        without = f"{counted(small, 'such client')} {'is' if small == 1 else 'are'} in no mean"
        notes.append(f"-: fewer than {fewest} test rows say nothing; {without}")
    table.caption, table.caption_justify = "; ".join(notes), "left"
    return table


def pool_lines(run: Path, metric: str, most: int = 12) -> list[str]:
    """Return one sentence per client on what each expert of the pool adds; empty without a pool or before the end."""
    file = RunDirectory(run).clients_file
    told = [line for one in read_clients(file) if (line := one.about_pool(metric))] if file.exists() else []
    return [*told[:most], *([f"and {len(told) - most} more clients in {file}"] if len(told) > most else [])]


def _cell(score: Score | None, metric: str) -> str:
    if score is None:
        return "-"
    if math.isnan(score.low):
        return "-" if math.isnan(score.value) else share(score.value, metric)
    low, high = (f"{100 * bound:.0f}" if in_percent(metric) else f"{bound:.3g}" for bound in (score.low, score.high))
    return f"{share(score.value, metric)} ({low} to {high})"
