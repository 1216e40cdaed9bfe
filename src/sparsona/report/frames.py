"""Runs as pandas DataFrames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparsona.errors import InputError
from sparsona.report.tensorboard import scalar_values
from sparsona.runs.clients import ClientScores
from sparsona.runs.records import RoundReport

if TYPE_CHECKING:
    import pandas


def history_frame(rounds: Sequence[RoundReport]) -> pandas.DataFrame:
    """A row a round: scores by point, bytes up and down, operations, the simulated second of its end.

    >>> from sparsona.wire import Ledger
    >>> one = RoundReport(1, 2, Ledger(values=8), Ledger(values=9), 8, 9, 100, 1.5, {"pre": {"mean": 0.5}}, {})
    >>> history_frame([one]).loc[1, ["pre/mean", "bytes/up"]].tolist()
    [0.5, 8.0]
    """
    return _frame([{"round": report.round, **scalar_values(report)} for report in rounds], "round")


def clients_frame(clients: Sequence[ClientScores]) -> pandas.DataFrame:
    """A row a client: its rows of data, and its last score at each point, by every metric."""
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
    return _frame(rows, "client")


def _frame(rows: Sequence[dict[str, Any]], index: str) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError:
        raise InputError("a DataFrame needs pandas: pip install 'sparsona[tables]'") from None
    return pandas.DataFrame.from_records(rows).set_index(index)
