"""A sweep in the terminal and as a file: a line per current run, and a closing table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from sparsona.files import write_atomically
from sparsona.report.compared import unit, with_half
from sparsona.report.console import size
from sparsona.report.statistics import interval
from sparsona.runs.records import RoundReport

if TYPE_CHECKING:
    from sparsona.studies.sweep import Setting, SweepPoint, SweptRun


class SweepProgress:
    """A bar for the sweep and one per current run. Without a terminal: one line per completed run."""

    def __init__(self, console: Console, runs: int, quiet: bool) -> None:
        self._console, self._quiet = console, quiet
        self._runs, self._done = runs, 0
        self._shown = console.is_terminal and not quiet
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not self._shown,
            transient=True,
        )
        self._whole = self._progress.add_task("runs", total=runs, note="")

    def __enter__(self) -> SweepProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, point: SweepPoint) -> None:
        """Show a bar for a run that begins."""
        from sparsona.experiment import rounds_of

        self._bars[point.name] = self._progress.add_task(point.name, total=rounds_of(point.settings), note="")

    def round(self, point: SweepPoint, report: RoundReport) -> None:
        """Move the bar after a completed round."""
        self._progress.update(self._bars[point.name], completed=report.round)
        score = report.scores["pre"]["mean"] if "pre" in report.scores else None
        if score is not None:
            self._progress.update(self._bars[point.name], note=f"pre {score:.4g}")

    def ended(self, point: SweepPoint, problem: str) -> None:
        """Note a run that has ended, or was finished before; `problem` says why it failed."""
        self._done += 1
        self._progress.update(self._whole, advance=1)
        made = point.name in self._bars
        if made:
            self._progress.remove_task(self._bars.pop(point.name))
        if made and not self._shown and not self._quiet:
            how = f": {problem}" if problem else ""
            self._console.print(f"[{self._done}/{self._runs}] {point.name}{how}", soft_wrap=True, markup=False)


def swept_table(runs: Sequence[SweptRun], chosen: Collection[Setting] | None = None) -> Table:
    """Return one row per combination: means over the seeds, with the 95 % interval of the mean.

    If settings are `chosen` on validation rows, these are marked, and only they have test scores.
    """
    metric = runs[0].summary["metric"]
    keys = [key for key in runs[0].point.chosen if key != "seed"]
    rows: dict[Setting, list[SweptRun]] = {}
    for run in runs:
        rows.setdefault(tuple((key, run.point.chosen[key]) for key in keys), []).append(run)
    table = Table(box=None, padding=(0, 0, 0, 1))
    for key in keys or ["run"]:
        table.add_column(key, overflow="fold")
    for column in ("seeds", "valid", "pre", "post", "up", "down", "GFLOP", "s"):
        table.add_column(column, justify="right", no_wrap=True)
    table.caption = (
        f"{unit(metric)}, mean over clients before (pre) and after (post) local training, 95 % interval over seeds; "
        "valid: pre on validation rows; bytes of all clients together; real seconds of a run"
        f"{'' if chosen is None else '; *: chosen by the score on validation rows, others are not tested'}"
    )
    table.caption_justify = "left"
    for setting, group in rows.items():
        tested = chosen is None or setting in chosen
        several = [run.summary for run in group]
        mark = "" if chosen is None or not tested else " *"
        cells = [
            with_half(interval([_mean_score(one, point) for one in several]), metric) if tested else ""
            for point in ("pre", "post")
        ]
        table.add_row(
            *([value for _, value in setting] or [several[0]["method"]]),
            str(len(several)),
            with_half(interval([run.validation for run in group]), metric) + mark,
            *cells,
            *(size(_mean([one["bytes"][way] for one in several])) for way in ("up", "down")),
            f"{_mean([one['flops'] for one in several]) / 1e9:,.1f}",
            f"{_mean([one['seconds'] for one in several]):,.1f}",
        )
    return table


def write_swept(file: Path, runs: Sequence[SweptRun], chosen: Collection[Setting] | None = None) -> None:
    """Write one line per run and seed; the column `chosen` marks settings that validation rows have chosen."""
    lines = [["run", *runs[0].point.chosen, "chosen", "validation", "pre", "post", "bytes_up", "bytes_down", "flops",
              "simulated_seconds", "seconds", "digest"]]  # fmt: skip
    for run in runs:
        found = run.summary
        scores = [_cell(_mean_score(found, point)) for point in ("pre", "post")]
        spent = [found["bytes"]["up"], found["bytes"]["down"], found["flops"], found["simulated_seconds"]]
        own = tuple((key, value) for key, value in run.point.chosen.items() if key != "seed")
        picked = "" if chosen is None else str(own in chosen).lower()
        scores = [picked, _cell(run.validation), *scores]
        lines.append([run.point.name, *run.point.chosen.values(), *scores, *map(str, spent), str(found["seconds"]),
                      found["digest"]])  # fmt: skip
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    write_atomically(file, text.getvalue())


def _mean_score(summary: Mapping[str, Any], point: str) -> float:
    found = summary[summary["metric"]].get(point, {}).get("mean")
    return math.nan if found is None else float(found)


def _cell(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
