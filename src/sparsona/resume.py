"""Begin or continue a run in its directory: only the same experiment with the same data may continue it."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparsona.errors import RunError
from sparsona.experiment import Experiment, build, read, to_toml
from sparsona.export.files import read_model
from sparsona.prepare import EarlierRun, Prepared
from sparsona.runs.about import FILE, About, changed_clients, describe, read_about, write_about
from sparsona.runs.directory import RunDirectory

log = logging.getLogger(__name__)


@contextmanager
def opened(folder: RunDirectory, prepared: Prepared, resume: bool, add: bool = False) -> Iterator[None]:
    """Lock the directory for this run, and write its experiment and data.

    With `add`, a finished run continues with other data; about.json says with which, and after which round.
    """
    experiment, about = prepared.experiment, about_run(prepared)
    if resume:
        about = replace(about, added=_added(folder, about, add))

    def agreed(file: Path) -> str:
        there = same_experiment(folder, experiment, ADDED if add else ())
        if add:
            return to_toml(experiment)
        same_data(folder, about)
        if (experiment.rounds, experiment.evaluation) == (there.rounds, there.evaluation):
            return file.read_text(encoding="utf-8")
        if experiment.rounds != there.rounds:
            more = "the run goes on from %d to %d rounds; what depends on their number sees the new one from now on"
            log.warning(more, there.rounds, experiment.rounds)
        return to_toml(experiment)

    with folder.open(to_toml(experiment), agreed, resume):
        if resume and (folder.path / FILE).exists():  # what began the run is what a reader wants to know
            about = replace(about, command=read_about(folder.path).command or about.command)
        write_about(folder.path, about)
        yield


ADDED = ("data", "clients")
"""Settings that may change when data are added to a run."""


def earlier_run(folder: RunDirectory, train: bool = True) -> EarlierRun:
    """Return the schema and clients of a finished run, for new data."""
    folder.summary()
    clients = tuple(sorted(read_about(folder.path).clients))
    return EarlierRun(read_model(folder.need_model(clients[0])).card.schema, clients, train)


def _added(folder: RunDirectory, about: About, add: bool) -> tuple[str, ...]:
    """Return the lines about all additions to the run."""
    there = read_about(folder.path)
    if not add:
        return there.added
    changed = changed_clients(folder.path, about)
    gone = [name for name in changed if name not in about.clients]
    if gone:
        raise RunError(f"client {gone[0]} of {folder.path} is not in the data: --add takes the old clients and more")
    if not changed:
        raise RunError(f"the data of {folder.path} have not changed: leave --add out")
    new = [name for name in changed if name not in there.clients]
    more = [name for name in changed if name in there.clients]
    what = [f"new clients {', '.join(new)}"] * bool(new) + [f"other rows of {', '.join(more)}"] * bool(more)
    line = f"after round {folder.summary()['rounds']}: {'; '.join(what)}"
    log.warning("%s", line)
    if more:
        log.warning("rows of %s are divided anew: test scores may count rows that were trained on before", more[0])
    return (*there.added, line)


def check_resumable(folder: RunDirectory, prepared: Prepared) -> None:
    """Raise `RunError` if the run in the directory belongs to another experiment or began with other data."""
    same_experiment(folder, prepared.experiment)
    same_data(folder, about_run(prepared))


def same_experiment(folder: RunDirectory, experiment: Experiment, free: Collection[str] = ()) -> Experiment:
    """Return the experiment of the run in the directory; raises `RunError` if `experiment` cannot continue it."""
    file = folder.experiment_file
    there, _ = build(read(file), str(file))
    setting = experiment.same_work(there, free)
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
    """Return the content of about.json for this run."""
    setup = prepared.setup
    found = describe(setup.federation, setup.objective, setup.task.layout.size, prepared.rows)
    return replace(found, doubts=tuple(doubt.line for doubt in prepared.doubts), rate=prepared.search)


def same_data(folder: RunDirectory, about: About) -> None:
    """Raise `RunError` if the run began with other rows; runs of older versions without hashes may continue."""
    changed = changed_clients(folder.path, about)
    if changed:
        names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        who = f"client {names} has" if len(changed) == 1 else f"clients {names} have"
        raise RunError(
            f"{folder.path} was begun with other data ({who} changed): restore the file, or choose another --out"
        )
