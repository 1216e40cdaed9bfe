"""Programs to which a running run is logged (`report_to`): one file per program.

A plug-in adds one through the entry-point group ``sparsona.report.loggers``.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from sparsona.errors import InputError, RunError, one_line
from sparsona.experiment import Experiment, flatten
from sparsona.registry import Registry
from sparsona.report.frames import client_values, scalar_values
from sparsona.report.html import write_report
from sparsona.report.live import AppendedLines
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord, RoundReport

log = logging.getLogger(__name__)

CLIENTS = 200
"""Largest number of clients for which each client's scalars are logged."""
REPORT = "report.html"


class RunLogger(Protocol):
    """Logs one run to a program. It is made before the first round, also for a resumed run."""

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Log the scalars of a round."""

    def close(self, files: Sequence[Path]) -> None:
        """Log the files of a completed run; `files` is empty if the run was interrupted or has failed."""


LOGGERS: Registry[Callable[[Path, Mapping[str, Any]], RunLogger]] = Registry("logger", __name__)
"""A logger is made from the run directory and all settings, by their dotted names."""


@contextmanager
def logged(run: RunDirectory, experiment: Experiment) -> Iterator[Callable[[RoundReport], None]]:
    """Log a run to the programs of `report_to`. Yields the function that takes each round's report.

    A program that fails later on is left out with a warning: the run is worth more than its log.
    """
    settings = {k: v for k, v in flatten(experiment.model_dump(mode="json")).items() if v not in (None, "", [])}
    open_loggers: dict[str, RunLogger] = {}
    clients = AppendedLines(run.records)

    def each(do: Callable[[RunLogger], None]) -> None:
        for name, logger in list(open_loggers.items()):
            try:
                do(logger)
            except Exception as error:  # noqa: BLE001  (each program has errors of its own)
                log.warning("the run is not logged to %s any more: %s", name, one_line(error)[:300])
                del open_loggers[name]

    def take(report: RoundReport) -> None:
        values = scalar_values(report)
        lines = [line for line in map(ClientRecord.parse, clients.lines()) if line.round == report.round]
        if len(lines) <= CLIENTS:
            values |= client_values(lines)
        each(lambda logger: logger.log(report.round, values))

    if not experiment.report_to:
        yield lambda report: None
        return
    files: list[Path] = []
    try:
        for name in experiment.report_to:
            open_loggers[name] = _made(name, run.path, settings)
        yield take
        files = [run.experiment_file, run.summary_file]
        with suppress(RunError):  # a run of which no round was measured has no report
            write_report([run.path], run.path / REPORT)
            files.append(run.path / REPORT)
    finally:
        each(lambda logger: logger.close(files))


def _made(name: str, folder: Path, settings: Mapping[str, Any]) -> RunLogger:
    try:
        return LOGGERS.get(name)(folder, settings)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  (each program has errors of its own)
        why = one_line(error)[:700]
        raise InputError(f"report_to: {name} does not start ({why}): mend that, or leave {name} out") from None


def lacking(name: str) -> InputError:
    """Return the error for a program that is not installed."""
    return InputError(f"report_to {name} needs {name}: pip install 'sparsona[{name}]'")
