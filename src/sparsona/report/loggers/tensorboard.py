"""TensorBoard: scalars in the folder tensorboard/ of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.report.loggers import LOGGERS, lacking

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    raise lacking("tensorboard") from None

FOLDER = "tensorboard"


@LOGGERS.add
class TensorBoard:
    """Write scalars and settings into the folder tensorboard/ of the run."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder, self._settings = folder / FOLDER, settings
        self._writer: Any = None

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Write the scalars of a round; they replace values that an interrupted run wrote for it or later rounds."""
        if self._writer is None:
            self._writer = SummaryWriter(str(self._folder), purge_step=round)
            lines = [f"    {name} = {value}" for name, value in self._settings.items()]
            self._writer.add_text("settings", "\n".join(lines))
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)

    def close(self, files: Sequence[Path]) -> None:
        """Close the file. The run directory holds the files of the run already."""
        if self._writer is not None:
            self._writer.close()
