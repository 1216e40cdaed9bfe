"""A comparison in the terminal: a live table during the runs, and closing tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sparsona.metrics._named import from_0_to_1, in_percent
from sparsona.report.comparison import Comparison, ComparisonRow
from sparsona.report.console import size
from sparsona.report.measured import MeasuredRun, mean_score
from sparsona.report.statistics import Interval
from sparsona.runs.budget import Budget
from sparsona.runs.records import RoundReport


def score(value: float | None, metric: str) -> str:
    """Return a score without its unit: accuracy and other shares in per cent."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{100 * value:.2f}" if in_percent(metric) else f"{value:.3f}" if from_0_to_1(metric) else f"{value:.4g}"


def with_half(found: Interval | None, metric: str, sign: bool = False) -> str:
    """Return a mean with the half width of its interval.

    >>> with_half(Interval(0.9618, 0.0051, 5), "accuracy"), with_half(Interval(-0.02, None, 1), "accuracy", sign=True)
    ('96.18±0.51', '-2.00')
    """
    if found is None:
        return "-"
    plus = "+" if sign and found.mean >= 0 else ""
    half = "" if found.half is None else f"±{score(found.half, metric)}"
    return f"{plus}{score(found.mean, metric)}{half}"


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 1))
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def unit(metric: str) -> str:
    """Return the heading of a column of scores."""
    return f"{metric} in %" if in_percent(metric) else metric


def print_comparison(console: Console, found: Comparison, title: str, budget: Budget | None = None) -> None:
    """Print scores and gains of each method, then its traffic and work; `budget` is the limit per run."""
    many = max(row.seeds for row in found.rows) > 1
    fixed = "" if found.redrawn else " (of the training; the split by time is the same in all)"
    told = "share of clients that their test rows show to be, at 5 % error for each; of the others they cannot tell"
    off = f"better, worse off: {told}" if any(row.verdicts for row in found.rows) else "worse off: share below alone"
    console.print(title, highlight=False, style="bold")
    console.print(_scores(found))
    console.print(
        f"{unit(found.metric)}, mean over clients before (pre) and after (post) local training"
        f"{f', 95 % interval over seeds{fixed}' if many else ''}; vs alone: pre, paired with {found.alone or 'local'}, "
        f"above 0 is better; "
        f"decile: the client at the bottom tenth, pre; {off}\n",
        highlight=False,
        style="dim",
    )
    if any(row.improving for row in found.rows):
        console.print("* still improving at its last round\n", highlight=False, style="dim")
    if any(row.others for row in found.rows):
        console.print(_others(found))
        console.print("the other metrics, pre\n", highlight=False, style="dim")
    console.print(_costs(found))
    whose = "the thriftiest method sends in all" if budget is None or budget.mb is None else "each may send"
    equal = "" if found.equal_bytes is None else f"at {size(found.equal_bytes)}: pre when no more had been sent than "
    console.print(
        f"bytes of all clients together; {f'{equal}{whose}; ' if equal else ''}simulated and real seconds of a run\n",
        highlight=False,
        style="dim",
    )


def _scores(found: Comparison) -> Table:
    table = _table("method", "pre", "post", "vs alone", "decile", "better", "worse off")
    for row in found.rows:
        table.add_row(
            _named(row),
            with_half(row.pre, found.metric),
            with_half(row.post, found.metric),
            with_half(row.gain, found.metric, sign=True),
            score(row.decile, found.metric),
            _share(row.better_off),
            _share(row.worse_off),
        )
    return table


def _named(row: ComparisonRow) -> str:
    return f"{row.label} (diverged)" if row.diverged else f"{row.label}*" if row.improving else row.label


def _others(found: Comparison) -> Table:
    """Return a table of the scores at `pre` by the further metrics."""
    names = next(list(row.others) for row in found.rows if row.others)
    table = _table("method", *map(unit, names))
    for row in found.rows:
        table.add_row(_named(row), *(with_half(row.others.get(metric), metric) for metric in names))
    return table


def _costs(found: Comparison) -> Table:
    head = "at equal" if found.equal_bytes is None else f"at {size(found.equal_bytes)}"
    table = _table("method", "up", "down", head, "GFLOP", "sim s", "s")
    for row in found.rows:
        if row.diverged:
            table.add_row(_named(row), *["-"] * 6)
            continue
        table.add_row(
            _named(row),
            size(row.up),
            size(row.down),
            with_half(row.at_equal, found.metric),
            f"{row.flops / 1e9:,.1f}",
            f"{row.simulated:,.0f}",
            f"{row.seconds:,.1f}" if math.isfinite(row.seconds) else "-",
        )
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


@dataclass
class _Lane:
    """The state of one contender during the comparison."""

    runs: list[MeasuredRun] = field(default_factory=list)
    round: int = 0
    score: float | None = None
    sent: int = 0
    note: str = ""


class LiveTable:
    """A live table with the state of every contender. Without a terminal: one line per completed run.

    Of a completed run it shows the evaluation that counts under the budget, as the closing tables do.
    """

    def __init__(
        self, console: Console, contenders: tuple[str, ...], seeds: int, metric: str, budget: Budget, quiet: bool
    ) -> None:
        self._console = console
        self._budget = budget
        self._seeds = seeds
        self._metric = metric
        self._quiet = quiet
        self._lanes = {one: _Lane() for one in contenders}
        self._live = Live(
            console=console, get_renderable=self._render, transient=True, refresh_per_second=4, auto_refresh=True
        )
        self._shown = console.is_terminal and not quiet

    def __enter__(self) -> LiveTable:
        if self._shown:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._live.stop()

    def started(self, contender: str, seed: int) -> None:
        """Note that a run has begun."""
        lane = self._lanes[contender]
        lane.round, lane.sent, lane.note = 0, 0, f"seed {seed}"

    def round(self, contender: str, seed: int, report: RoundReport) -> None:
        """Note a completed round."""
        lane = self._lanes[contender]
        lane.round, lane.note = report.round, f"seed {seed}, round {report.round}"
        lane.sent += report.up.total + report.down.total
        if "pre" in report.scores:
            lane.score = report.scores["pre"]["mean"]

    def ended(self, contender: str, seed: int, run: MeasuredRun | None) -> None:
        """Note the end of a run; `run` is None if it failed."""
        lane = self._lanes[contender]
        lane.note = ""
        if run is not None:
            lane.runs.append(run)
        if not self._shown and not self._quiet:
            counts = run.last(self._budget) if run is not None else None
            shown = score(mean_score(counts.test["pre"]) if counts is not None else None, self._metric)
            shown = "diverged" if run is not None and run.diverged else shown
            self._console.print(f"{contender}, seed {seed}: {shown}", soft_wrap=True, highlight=False)

    def _render(self) -> Table:
        table = _table("method", "seeds", f"pre, {unit(self._metric)}", "MB a run", "now")
        for name, lane in self._lanes.items():
            counts = [end for run in lane.runs if not run.diverged and (end := run.last(self._budget)) is not None]
            means = [mean_score(end.test["pre"]) for end in counts]
            shown = sum(means) / len(means) if means else lane.score
            sent = [end.bytes for end in counts] or [lane.sent]
            table.add_row(
                name,
                f"{len(lane.runs)}/{self._seeds}",
                score(shown, self._metric),
                f"{sum(sent) / len(sent) / 1e6:.2f}",
                lane.note,
            )
        return table
