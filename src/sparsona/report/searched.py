"""Searches in the terminal: trials and their front, a race and its recommendation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from sparsona.report.compared import score, unit
from sparsona.report.words import Answer

if TYPE_CHECKING:
    from sparsona.studies.tuning import Target, Trial


def trial_lines(console: Console, trials: int, quiet: bool) -> Callable[[Trial | None, int, str, str], None]:
    """Return the function that prints a line for each completed trial."""

    def show(trial: Trial | None, number: int, note: str, metric: str) -> None:
        if quiet:
            return
        end = f"failed, {note}" if trial is None else f"{score(trial.validation, metric)}, {trial.mb:.3f} MB"
        what = "" if trial is None else f": {settings_text(trial)}"
        console.print(f"trial {number + 1} of {trials}{what}: {end}", soft_wrap=True, highlight=False)

    return show


def settings_text(trial: Trial) -> str:
    """Return a trial's settings in one line."""
    return " ".join(f"{key}={value}" for key, value in trial.settings.items())


def front_table(front: Sequence[Trial], chosen: Trial, metric: str) -> Table:
    """Return a table of the trials that no other beats in both aims; the chosen one is marked."""
    table = Table(box=None, padding=(0, 0, 0, 1))
    table.add_column("MB", justify="right", no_wrap=True)
    table.add_column(f"validation, {unit(metric)}", justify="right", no_wrap=True)
    table.add_column("settings", overflow="fold")
    rows = list(front) if chosen in front else sorted([*front, chosen], key=lambda trial: trial.mb)
    for trial in rows:
        mark = " <- chosen" if trial == chosen else ""
        table.add_row(f"{trial.mb:.3f}", score(trial.validation, metric), settings_text(trial) + mark)
    return table


def verdict(chosen: Trial, target: Target, met: bool, metric: str) -> str:
    """Return one line on the chosen trial."""
    if target.mb is not None:
        head = f" {'within' if met else 'for'} {target.mb:g} MB"
    else:
        head = "" if target.score is None else f" for {metric} {target.score:g}"
    missed = "" if met else ", which no trial met: this one comes nearest"
    return (
        f"chosen by validation data{head}{missed}: {score(chosen.validation, metric)} with {chosen.mb:.3f} MB; "
        f"on test data, not looked at before, {score(chosen.test, metric)}. Run it with:"
    )


@contextmanager
def race_status(console: Console, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield the function that shows the current run: in a terminal on one line, elsewhere one line each."""
    if quiet:
        yield lambda text: None
    elif console.is_terminal:
        with console.status("the race begins") as status:
            yield lambda text: status.update(text)
    else:
        yield lambda text: console.print(text, soft_wrap=True, highlight=False)


def print_answer(console: Console, found: Answer, account: Sequence[str]) -> None:
    """Print the sentences of a report, with the race before them and the command after them."""
    for line in account:
        console.print(line, highlight=False, style="dim")
    console.print()
    for line in (found.which, found.gain, found.cost, found.now):
        console.print(line, highlight=False)
    for command in found.commands:
        console.print(f"  {command}", soft_wrap=True, highlight=False)
