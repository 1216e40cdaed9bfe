"""Begin or continue a run in its directory: only the same experiment with the same data may continue it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparsona.errors import RunError
from sparsona.experiment import Experiment, build, read, to_toml
from sparsona.prepare import Prepared
from sparsona.runs.about import About, changed_clients, describe, write_about
from sparsona.runs.directory import RunDirectory

log = logging.getLogger(__name__)


@contextmanager
def opened(folder: RunDirectory, prepared: Prepared, resume: bool) -> Iterator[None]:
    """Hold the directory for this run, whose experiment and data are written there."""
    experiment, about = prepared.experiment, about_run(prepared)

    def agreed(file: Path) -> str:
        there = same_experiment(folder, experiment)
        same_data(folder, about)
        if (experiment.rounds, experiment.evaluation) == (there.rounds, there.evaluation):
            return file.read_text(encoding="utf-8")
        if experiment.rounds != there.rounds:
            more = "the run goes on from %d to %d rounds; what depends on their number sees the new one from now on"
            log.warning(more, there.rounds, experiment.rounds)
        return to_toml(experiment)

    with folder.open(to_toml(experiment), agreed, resume):
        write_about(folder.path, about)
        yield


def check_resumable(folder: RunDirectory, prepared: Prepared) -> None:
    """Raise `RunError` if the run in the directory belongs to another experiment or began with other data."""
    same_experiment(folder, prepared.experiment)
    same_data(folder, about_run(prepared))


def same_experiment(folder: RunDirectory, experiment: Experiment) -> Experiment:
    """The experiment whose run is in the directory. Raises `RunError` if `experiment` cannot continue it."""
    file = folder.experiment_file
    there, _ = build(read(file), str(file))
    setting = experiment.same_work(there)
    if setting is not None:
        raise RunError(
            f"{folder.path} belongs to another experiment ({setting} differs): choose another --out, "
            f"or run {file} --resume"
        )
    if experiment.rounds < there.rounds:
        raise RunError(
            f"{folder.path} holds a run of {there.rounds} rounds, {experiment.rounds} are asked for: "
            f"give --rounds {there.rounds} or more, or choose another --out"
        )
    return there


def about_run(prepared: Prepared) -> About:
    """What about.json says of this run."""
    setup = prepared.setup
    found = describe(setup.federation, setup.objective, setup.task.layout.size, prepared.rows)
    return replace(found, doubts=tuple(doubt.line for doubt in prepared.doubts))


def same_data(folder: RunDirectory, about: About) -> None:
    """Raise `RunError` if the run began with other rows. A run of an older version, which noted none, may continue."""
    changed = changed_clients(folder.path, about)
    if changed:
        names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        who = f"client {names} has" if len(changed) == 1 else f"clients {names} have"
        raise RunError(
            f"{folder.path} was begun with other data ({who} changed): restore the file, or choose another --out"
        )
