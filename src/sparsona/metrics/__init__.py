"""The metrics, by the names that the command line takes.

A metric is a function of the answers that a model gives for some rows. A plug-in adds one through the entry-point
group ``sparsona.metrics``::

    @metric("classification", unit="number", higher_is_better=False, additive=True)
    def missed_cost(answers: Answers) -> Array:
        \"\"\"Cost of wrong answers: a missed case costs ten times a false alarm.\"\"\"
        wrong = answers.predictions != answers.targets
        return wrong * np.where(answers.targets == answers.positive, 10.0, 1.0)
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsona.errors import InputError
from sparsona.metrics._metric import Answers, Metric, TaskName, Unit, metric
from sparsona.registry import Registry

METRICS: Registry[Metric] = Registry("metric", __name__)

__all__ = ["METRICS", "Answers", "Metric", "TaskName", "Unit", "chosen", "from_0_to_1", "in_percent", "known", "metric"]


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
