"""A run's scalars for TensorBoard, in the folder tensorboard/ of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparsona.errors import InputError
from sparsona.runs.records import RoundReport

FOLDER = "tensorboard"


@contextmanager
def scalars(run: Path) -> Iterator[Callable[[RoundReport], None]]:
    """Writes every round that it is called with; what an interrupted run wrote of that round or later is replaced."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs tensorboard: pip install 'sparsona[tensorboard]'") from None
    writer: Any = None

    def write(report: RoundReport) -> None:
        nonlocal writer
        if writer is None:
            writer = SummaryWriter(str(run / FOLDER), purge_step=report.round)
        for name, value in scalar_values(report).items():
            writer.add_scalar(name, value, report.round)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def told_to(watchers: Sequence[Callable[[RoundReport], None]]) -> Callable[[RoundReport], None]:
    """One function that hands a round's report to all of them."""

    def tell(report: RoundReport) -> None:
        for watcher in watchers:
            watcher(report)

    return tell


def scalar_values(report: RoundReport) -> dict[str, float]:
    """Scores by point, bytes and work of the round, and the simulated second of its end."""
    found: dict[str, float | None] = {
        f"{point}/{name}": value for point, scores in report.scores.items() for name, value in scores.items()
    }
    found |= {f"{point}/validation": value for point, value in report.validation.items()}
    found |= {
        "bytes/up": report.up.total,
        "bytes/down": report.down.total,
        "flops": report.flops,
        "simulated seconds": report.clock,
        "clients that took part": report.took_part,
    }
    return {name: float(value) for name, value in found.items() if value is not None}
