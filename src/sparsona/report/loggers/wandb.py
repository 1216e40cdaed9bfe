"""Weights & Biases: in the project WANDB_PROJECT ("sparsona" if it is not set); WANDB_MODE=offline sends nothing."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.files import write_atomically
from sparsona.report.loggers import LOGGERS, lacking

FILE = "wandb.id"
"""The file in the run directory with the run's id, for resuming."""


@LOGGERS.add
class WeightsAndBiases:
    """Log scalars, settings and files to Weights & Biases."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise lacking("wandb") from None
        file = folder / FILE
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
