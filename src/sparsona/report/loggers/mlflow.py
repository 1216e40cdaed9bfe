"""MLflow: at MLFLOW_TRACKING_URI, in the experiment MLFLOW_EXPERIMENT_NAME ("sparsona" if it is not set)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.files import write_atomically
from sparsona.report.loggers import LOGGERS, lacking

FILE = "mlflow.id"
"""The file in the run directory with the run's id at MLflow, for resuming."""
BATCH = 100
"""Parameters or metrics per request. MLflow accepts at most 100 and 1000."""
LONGEST = 500
"""Largest number of characters of a parameter."""
SIGNS = re.compile(r"[^\w\-./ ]")
"""Characters that MLflow does not allow in the name of a metric."""


@LOGGERS.add
class Mlflow:
    """Log scalars, settings and files to MLflow."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise lacking("mlflow") from None
        self._client, self._metric = MlflowClient(), Metric
        file = folder / FILE
        if file.exists():
            self._run = file.read_text(encoding="ascii")
            self._client.update_run(self._run, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "sparsona")
        there = self._client.get_experiment_by_name(name)
        study = self._client.create_experiment(name) if there is None else there.experiment_id
        self._run = self._client.create_run(study, run_name=folder.name).info.run_id
        params = [Param(name, str(value)[:LONGEST]) for name, value in settings.items()]
        for at in range(0, len(params), BATCH):
            self._client.log_batch(self._run, params=params[at : at + BATCH])
        write_atomically(file, self._run)

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Log the scalars of a round."""
        now = int(time.time() * 1000)
        found = [self._metric(SIGNS.sub("_", name), value, now, round) for name, value in values.items()]
        for at in range(0, len(found), BATCH):
            self._client.log_batch(self._run, metrics=found[at : at + BATCH])

    def close(self, files: Sequence[Path]) -> None:
        """Log the files and end the run; an incomplete run can be resumed."""
        for file in files:
            self._client.log_artifact(self._run, str(file))
        self._client.set_terminated(self._run, "FINISHED" if files else "KILLED")
