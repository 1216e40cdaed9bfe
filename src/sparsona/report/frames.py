"""Runs as tables: pandas DataFrames where pandas is installed, else light ones."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

from sparsona.files import write_atomically
from sparsona.runs.clients import ClientScores
from sparsona.runs.records import ClientRecord, RoundReport

Frame: TypeAlias = Any
"""A pandas DataFrame, or a :class:`LightFrame` where pandas is not installed."""


def history_frame(rounds: Sequence[RoundReport]) -> Frame:
    """Return one row per round: scores by point, bytes up and down, operations, the simulated second of its end.

    >>> from sparsona.wire import Ledger
    >>> one = RoundReport(1, 2, Ledger(values=8), Ledger(values=9), 8, 9, 100, 1.5, {"pre": {"mean": 0.5}}, {})
    >>> history_frame([one]).loc[1, ["pre/mean", "bytes/up"]].tolist()
    [0.5, 8.0]
    """
    return frame([{"round": report.round, **scalar_values(report)} for report in rounds], "round")


def clients_frame(clients: Sequence[ClientScores]) -> Frame:
    """Return one row per client: its numbers of rows, and its last score at each point, by every metric."""
    rows = [
        {
            "client": one.client,
            "train": one.train,
            "validation": one.validation,
            "test": one.test,
            **{name: score.value for name, score in one.all_scores().items()},
        }
        for one in clients
    ]
    return frame(rows, "client")


@dataclass(frozen=True)
class LightFrame:
    """A table of rows for a Python without pandas: `frame["column"]` is a list, `len(frame)` the number of rows."""

    rows: tuple[Mapping[str, Any], ...]

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns, in order of first occurrence."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        return [row.get(column) for row in self.rows]

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """Write the table as csv; without a path, return it."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        if path is None:
            return text.getvalue()
        write_atomically(Path(path), text.getvalue())
        return None

    def __str__(self) -> str:
        return str(self.to_csv())

    def _repr_html_(self) -> str:
        cells = [[escape(str(row.get(name, ""))) for name in self.columns] for row in self.rows]
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
        return f"<table><tr>{head}</tr>{body}</table>"


def frame(rows: Sequence[Mapping[str, Any]], index: str = "") -> Frame:
    """Return the rows as a DataFrame with the column `index` as its index; without pandas as a light frame."""
    try:
        import pandas
    except ImportError:
        return LightFrame(tuple(rows))
    made = pandas.DataFrame.from_records([dict(row) for row in rows])
    return made.set_index(index) if index and len(made) else made


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
