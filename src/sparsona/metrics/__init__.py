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

from sparsona.metrics._metric import Answers, Metric, TaskName, Unit, metric
from sparsona.registry import Registry

METRICS: Registry[Metric] = Registry("metric", __name__)

__all__ = ["METRICS", "Answers", "Metric", "TaskName", "Unit", "metric"]
