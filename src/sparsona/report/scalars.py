"""The numbers of one round by name: for tables, and for the programs that `report_to` names."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sparsona.runs.records import ClientRecord, RoundReport


def scalar_values(report: RoundReport) -> dict[str, float]:
    """Return scores by point, bytes and work of the round, and the simulated second of its end."""
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


def client_values(lines: Iterable[ClientRecord]) -> dict[str, float]:
    """Return the test scores by point, training loss and bytes of each client in one round."""
    found: dict[str, float] = {}
    for line in lines:
        own = {**line.test, "loss": line.loss, "bytes up": line.up.total, "bytes down": line.down.total}
        found |= {f"clients/{line.client}/{name}": float(value) for name, value in own.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}
