"""MLflow, TensorBoard, and Weights & Biases. A file in the run directory holds the run's id there, for resuming."""

import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.files import write_atomically
from sparsona.report.loggers import LOGGERS, lacking

BATCH = 100
"""Parameters or metrics per request. MLflow accepts at most 100 and 1000."""
LONGEST = 500
"""Largest number of characters of a parameter."""
SIGNS = re.compile(r"[^\w\-./ ]")
"""Characters that MLflow does not allow in the name of a metric."""


@LOGGERS.named("mlflow")
class Mlflow:
    """Log scalars, settings and files to MLflow: at MLFLOW_TRACKING_URI, in the experiment MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise lacking("mlflow") from None
        self._client, self._metric = MlflowClient(), Metric
        file = folder / "mlflow.id"
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


@LOGGERS.named("tensorboard")
class TensorBoard:
    """Write scalars and settings into the folder tensorboard/ of the run."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise lacking("tensorboard") from None
        self._folder, self._settings, self._make = folder / "tensorboard", settings, SummaryWriter
        self._writer: Any = None

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Write the scalars of a round; they replace values that an interrupted run wrote for it or later rounds."""
        if self._writer is None:
            self._writer = self._make(str(self._folder), purge_step=round)
            lines = [f"    {name} = {value}" for name, value in self._settings.items()]
            self._writer.add_text("settings", "\n".join(lines))
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)

    def close(self, files: Sequence[Path]) -> None:
        """Close the file. The run directory holds the files of the run already."""
        if self._writer is not None:
            self._writer.close()


@LOGGERS.named("wandb")
class WeightsAndBiases:
    """Log scalars, settings and files to Weights & Biases, in WANDB_PROJECT; WANDB_MODE=offline sends nothing."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise lacking("wandb") from None
        file = folder / "wandb.id"
        if not file.exists():
            write_atomically(file, secrets.token_hex(4))
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "sparsona"),
            id=file.read_text(encoding="ascii"),
            resume="allow",
            reinit="create_new",
            name=folder.name,
            group=folder.resolve().parent.name,
            config=dict(settings),
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Log the scalars of a round."""
        self._run.log({"round": round, **values})

    def close(self, files: Sequence[Path]) -> None:
        """Keep copies of the files with the run, and end it."""
        for file in files:
            copy = shutil.copy(file, self._run.dir)  # of a file elsewhere only a link would be kept
            self._run.save(copy, base_path=self._run.dir, policy="now")
        self._run.finish(exit_code=0 if files else 1)
