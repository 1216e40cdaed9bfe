"""Studies in the terminal: tables of comparisons, sweeps and searches, and their answers in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from sparsona.metrics import from_0_to_1, in_percent
from sparsona.report.comparison import Comparison, ComparisonRow
from sparsona.report.console import size
from sparsona.report.frames import LightFrame
from sparsona.report.statistics import Interval, interval
from sparsona.report.words import Answer
from sparsona.runs.budget import Budget

if TYPE_CHECKING:
    from sparsona.studies.calls import Tuned
    from sparsona.studies.sweep import Setting, SweptRun
    from sparsona.studies.tuning import Trial


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


def _table(first: Sequence[str], *columns: str) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 1))
    for column in first:
        table.add_column(column, overflow="fold")
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
    table = _table(["method"], "pre", "post", "vs alone", "decile", "better", "worse off")
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
    names = next(list(row.others) for row in found.rows if row.others)
    table = _table(["method"], *map(unit, names))
    for row in found.rows:
        table.add_row(_named(row), *(with_half(row.others.get(metric), metric) for metric in names))
    return table


def _costs(found: Comparison) -> Table:
    head = "at equal" if found.equal_bytes is None else f"at {size(found.equal_bytes)}"
    table = _table(["method"], "up", "down", head, "GFLOP", "sim s", "s")
    for row in found.rows:
        equal, seconds = with_half(row.at_equal, found.metric), f"{row.seconds:,.1f}".replace("nan", "-")
        work = f"{row.flops / 1e9:,.1f}", f"{row.simulated:,.0f}", seconds
        table.add_row(_named(row), *["-"] * 6 if row.diverged else (size(row.up), size(row.down), equal, *work))
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def trial_text(trial: Trial | None, number: int, trials: int, why: str, metric: str) -> str:
    """Return a line on a completed trial; None failed, and `why` says the reason."""
    end = f"failed, {why}" if trial is None else f"{score(trial.validation, metric)}, {trial.mb:.3f} MB"
    what = "" if trial is None else f": {settings_text(trial)}"
    return f"trial {number + 1} of {trials}{what}: {end}"


def settings_text(trial: Trial) -> str:
    """Return a trial's settings in one line."""
    return " ".join(f"{key}={value}" for key, value in trial.settings.items())


def front_table(found: Tuned) -> Table:
    """Return a table of the trials that no other beats in both aims; the chosen one is marked."""
    table = Table(box=None, padding=(0, 0, 0, 1))
    table.add_column("MB", justify="right", no_wrap=True)
    table.add_column(f"validation, {unit(found.metric)}", justify="right", no_wrap=True)
    table.add_column("settings", overflow="fold")
    for trial in found.front:
        mark = " <- chosen" if trial == found.chosen else ""
        table.add_row(f"{trial.mb:.3f}", score(trial.validation, found.metric), settings_text(trial) + mark)
    return table


def verdict(found: Tuned) -> str:
    """Return one line on the chosen trial."""
    chosen, target, metric = found.chosen, found.target, found.metric
    if target.mb is not None:
        head = f" {'within' if found.met else 'for'} {target.mb:g} MB"
    else:
        head = "" if target.score is None else f" for {metric} {target.score:g}"
    missed = "" if found.met else ", which no trial met: this one comes nearest"
    return (
        f"chosen by validation data{head}{missed}: {score(chosen.validation, metric)} with {chosen.mb:.3f} MB; "
        f"on test data, not looked at before, {score(chosen.test, metric)}. Run it with:"
    )


def print_answer(console: Console, found: Answer, account: Sequence[str]) -> None:
    """Print the sentences of a report, with the race before them and the command after them."""
    for line in account:
        console.print(line, highlight=False, style="dim")
    console.print()
    for line in (found.which, found.gain, found.cost, found.now):
        console.print(line, highlight=False)
    for command in found.commands:
        console.print(f"  {command}", soft_wrap=True, highlight=False)


def swept_table(runs: Sequence[SweptRun], chosen: Collection[Setting] | None = None) -> Table:
    """Return one row per combination: means over the seeds, with the 95 % interval of the mean.

    If settings are `chosen` on validation rows, these are marked, and only they have test scores.
    """
    metric = runs[0].summary["metric"]
    keys = [key for key, _ in runs[0].point.setting]
    rows: dict[Setting, list[SweptRun]] = {}
    for run in runs:
        rows.setdefault(run.point.setting, []).append(run)
    table = _table(keys or ["run"], "seeds", "valid", "pre", "post", "up", "down", "GFLOP", "s")
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
            with_half(interval([run.scores[point] for run in group]), metric) if tested else ""
            for point in ("pre", "post")
        ]
        table.add_row(
            *([value for _, value in setting] or [several[0]["method"]]),
            str(len(several)),
            with_half(interval([run.scores["validation"] for run in group]), metric) + mark,
            *cells,
            *(size(_mean([one["bytes"][way] for one in several])) for way in ("up", "down")),
            f"{_mean([one['flops'] for one in several]) / 1e9:,.1f}",
            f"{_mean([one['seconds'] for one in several]):,.1f}",
        )
    return table


def write_swept(file: Path, runs: Sequence[SweptRun], chosen: Collection[Setting] | None = None) -> None:
    """Write one line per run and seed; the column `chosen` marks settings that validation rows have chosen."""
    rows = [
        {
            "run": run.point.name,
            **run.point.chosen,
            "chosen": "" if chosen is None else str(run.point.setting in chosen).lower(),
            **{key: "" if math.isnan(value) else value for key, value in run.scores.items()},
            **{f"bytes_{way}": run.summary["bytes"][way] for way in ("up", "down")},
            **{key: run.summary[key] for key in ("flops", "simulated_seconds", "seconds", "digest")},
        }
        for run in runs
    ]
    LightFrame(tuple(rows)).to_csv(file)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
