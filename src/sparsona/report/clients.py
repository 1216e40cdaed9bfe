"""A table of a run's clients for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from sparsona.metrics._named import in_percent
from sparsona.report.console import share
from sparsona.runs.clients import ClientScores, Score, read_clients
from sparsona.runs.directory import RunDirectory
from sparsona.words import counted

MOST = 40
POINTS = ("pre", "post")


def clients_table(clients: Sequence[ClientScores], metric: str, fewest: int, repeats: int = 1) -> Table:
    """Return a table of rows and scores per client, with 95 % intervals; a dash means too few test rows."""
    times = f", over {repeats} splits" if repeats > 1 else ""
    table = Table(title=f"{metric} of each client{times}", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("client", no_wrap=True)
    for label in ("train", "tested", *(f"{point} (95 % interval)" for point in POINTS)):
        table.add_column(label, justify="right", no_wrap=True)
    for one in clients[:MOST]:
        cells = [_cell(one.scores.get(point), metric) for point in POINTS]
        table.add_row(one.client, str(one.train), str(one.test), *cells)
    notes = [f"and {len(clients) - MOST} more in clients.csv"] if len(clients) > MOST else []
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
