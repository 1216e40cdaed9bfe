"""Metrics by the names that records and tables have: `auc`, or `auc:fever` for one label."""

from __future__ import annotations

from collections.abc import Sequence

from sparsona.errors import InputError
from sparsona.metrics import METRICS
from sparsona.metrics._metric import Metric, TaskName


def known(name: str) -> Metric | None:
    """Return the metric of this name; None if it belongs to an own objective or to a plug-in that is not installed."""
    base = name.partition(":")[0]
    return METRICS.get(base) if base in METRICS.names() else None


def in_percent(name: str) -> bool:
    """Return whether a score is shown in per cent, and a difference in points.

    >>> in_percent("accuracy"), in_percent("sensitivity:fever"), in_percent("mae"), in_percent("my own")
    (True, True, False, False)
    """
    found = known(name)
    return found is not None and found.unit == "%"


def from_0_to_1(name: str) -> bool:
    """Return whether no score can be below 0 or above 1.

    >>> from_0_to_1("accuracy"), from_0_to_1("auc:fever"), from_0_to_1("mae"), from_0_to_1("r2")
    (True, True, False, False)
    """
    return in_percent(name) or name.partition(":")[0] in ("auc", "average-precision", "brier")


def chosen(names: Sequence[str], task: TaskName, labels: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of these names for a task. Of several `labels` each has its own score behind the mean.

    >>> [one.name for one in chosen(["auc"], "multilabel", ["fever", "cough"])]
    ['auc', 'auc:fever', 'auc:cough']
    """
    found: list[Metric] = []
    for name in dict.fromkeys(names):
        one = METRICS.get(name)
        if task not in one.tasks:
            fitting = ", ".join(other for other, metric in METRICS if task in metric.tasks)
            raise InputError(f"metric {name!r} is not for {task}: choose among {fitting}")
        found.append(one)
    each = labels if task == "multilabel" else ()
    return (*found, *(one.for_label(number, label) for one in found for number, label in enumerate(each)))
