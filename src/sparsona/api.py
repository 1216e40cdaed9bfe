"""Run an experiment from Python: `sparsona.run` and what it returns."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import logging
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import nn

from sparsona.data import from_arrays
from sparsona.data.dataset import Array, Dataset
from sparsona.engines import ENGINES
from sparsona.errors import InputError
from sparsona.experiment import Experiment, assign, build, read, to_toml
from sparsona.federation.rounds import Rounds
from sparsona.federation.schedule import Schedule
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Outcome
from sparsona.method import ClientId, Method, Model
from sparsona.methods.pfednet.network import Network
from sparsona.ops.pairwise import Similarity
from sparsona.prepare import GIVEN, Prepared, prepare
from sparsona.report.similarity import network_of, save, save_network, similarity_of
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.names import file_stem
from sparsona.runs.records import RoundReport, RunLog
from sparsona.runs.scores import POINTS, summarise
from sparsona.runs.state import digest
from sparsona.runs.stopping import stopped_by_sigterm
from sparsona.training.objective import Objective
from sparsona.training.runner import ModelRunner
from sparsona.version import __version__
from sparsona.wire import Ledger

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PersonalModel:
    """One client's own model."""

    client: ClientId
    model: Model
    _runner: ModelRunner = field(repr=False)

    def predict(self, inputs: Array) -> Array:
        """Predictions for raw inputs, of the shape and units of the data that it was trained on."""
        return self._runner.predict(self.model, np.ascontiguousarray(inputs))

    def tensors(self) -> dict[str, Array]:
        """The weights by name, where the model is one vector."""
        if not isinstance(self.model, np.ndarray):
            raise InputError(f"the model of {self.client} is a {type(self.model).__name__}, not one set of weights")
        return dict(self._runner.layout.named(self.model))


class Models(Mapping[ClientId, PersonalModel]):
    """Every client's own model. Those that a run directory holds are read when they are asked for, and models that
    several clients share are held once: memory does not grow with the clients if it need not."""

    def __init__(self, clients: tuple[ClientId, ...], runner: ModelRunner, folder: RunDirectory | None) -> None:
        self._runner = runner
        self._folder = folder
        self._held: dict[ClientId, Model | None] = dict.fromkeys(clients)
        self._same: dict[bytes, Model] = {}

    def add(self, client: ClientId, model: Model) -> None:
        if not isinstance(model, np.ndarray):
            self._held[client] = model
        elif self._folder is None:
            key = hashlib.sha256(np.ascontiguousarray(model).data).digest()
            self._held[client] = self._same.setdefault(key, model)

    def __getitem__(self, client: ClientId) -> PersonalModel:
        model = self._held[client]
        if model is None:
            assert self._folder is not None
            named = load_file(self._folder.model_file(client))
            model = np.concatenate([named[tensor.name].reshape(-1) for tensor in self._runner.layout.tensors])
        return PersonalModel(client, model, self._runner)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


@dataclass(frozen=True)
class Result:
    """What a run gives: a report a round, a model a client, and the summary that summary.json holds.

    `similarity` says who is like whom, where the method has measured it; `network` who is whose neighbour, newcomers
    included, where it has made one.
    """

    summary: dict[str, Any]
    history: tuple[RoundReport, ...]
    models: Mapping[ClientId, PersonalModel]
    scores: Mapping[ClientId, Mapping[str, float]]
    path: Path | None = None
    similarity: Similarity | None = None
    network: Network | None = None


def run(
    method: str | Method[Any, Any] = "fedavg",
    *,
    data: str | Dataset | Mapping[str, Any] = "digits",
    model: str | nn.Module | Callable[[], nn.Module] = "auto",
    objective: Objective | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    set: tuple[str, ...] = (),
    **settings: Any,
) -> Result:
    """Train a federation and return a model a client.

    >>> result = run("fedavg", clients=3, rounds=2, partition="iid")
    >>> sorted(result.models), result.summary["accuracy"]["pre"]["mean"] > 0.5
    (['c0', 'c1', 'c2'], True)

    Your own arrays, one pair (inputs, targets) a client, and your own module:

    >>> rng = np.random.default_rng(0)
    >>> wards = {w: (rng.normal(size=(40, 5)).astype("float32"), rng.integers(0, 2, 40)) for w in ("east", "west")}
    >>> result = run("local", data=wards, model=nn.Linear(5, 2), rounds=3)
    >>> result.models["east"].predict(wards["east"][0][:4]).shape
    (4,)

    `settings` are those of the experiment file (clients, partition, rounds, seed, training={"lr": 0.05}, ...); `set`
    takes the same ``key=value`` texts as the command line. Without `out` nothing is written to disk.
    """
    settings["data"] = data if isinstance(data, str) else GIVEN
    settings["model"] = model if isinstance(model, str) else GIVEN
    if isinstance(method, str):
        settings["method"] = method
    if isinstance(schedule, Mapping):
        settings["schedule"] = schedule
    prepared = prepare(
        assign(settings, set),
        method=None if isinstance(method, str) else method,
        data=None if isinstance(data, str) else data if isinstance(data, Dataset) else from_arrays(data),
        model=None if isinstance(model, str) else model,
        objective=objective,
        schedule=None if isinstance(schedule, Mapping) else schedule,
    )
    return execute(prepared, RunDirectory(Path(out)) if out is not None else None, resume, on_round)


def execute(
    prepared: Prepared,
    folder: RunDirectory | None = None,
    resume: bool = False,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    on_start: Callable[[int], None] = lambda done: None,
) -> Result:
    """Run what :func:`prepare` made; into `folder`, where there is one."""
    with stopped_by_sigterm(), _opened(folder, prepared.experiment, resume):
        return _execute(prepared, folder, resume, on_round, on_start)


def _opened(folder: RunDirectory | None, experiment: Experiment, resume: bool) -> AbstractContextManager[None]:
    if folder is None:
        return nullcontext()

    def differs(file: Path) -> str | None:
        return experiment.same_work(build(read(file), str(file))[0])

    return folder.open(to_toml(experiment), differs, resume)


def _execute(
    prepared: Prepared,
    folder: RunDirectory | None,
    resume: bool,
    on_round: Callable[[RoundReport], None],
    on_start: Callable[[int], None],
) -> Result:
    setup, experiment = prepared.setup, prepared.experiment
    for client in setup.federation.splits:
        file_stem(client)  # a name that no file can have is named now, not after the last round
    sizes = {name: len(share.test) for name, share in setup.federation.splits.items()}
    run_log = RunLog(sizes, setup.objective.higher_is_better, folder.records if folder else None)
    checkpointer = Checkpointer(folder.checkpoint, folder.records) if folder else None
    with _repeatable():
        engine = ENGINES.get(experiment.engine)(setup, experiment.workers)
        try:
            rounds = Rounds(setup, engine, prepared.schedule, experiment.evaluation, run_log, checkpointer)
            if resume:
                rounds.resume()
            on_start(rounds.done)
            rounds.run(on_round)
            return _finish(prepared, rounds, folder)
        finally:
            engine.close()


def _finish(prepared: Prepared, rounds: Rounds, folder: RunDirectory | None) -> Result:
    setup, experiment, run_log = prepared.setup, prepared.experiment, rounds.run_log
    notes = _notes(prepared)
    module = copy.deepcopy(setup.module)  # a runner takes its module's weights over: the engine still needs its own
    runner = ModelRunner(module, setup.federation.data, setup.objective, setup.task.chance, setup.device)
    models = Models(setup.task.clients, runner, folder)
    for outcome in rounds.finish("personal", setup.task.clients):
        assert outcome.model is not None
        if folder is not None:
            folder.save_model(outcome.job.client, outcome.model, setup.task.layout, notes)
        models.add(outcome.job.client, outcome.model)
    joining = rounds.join(prepared.newcomers)
    joined = list(rounds.finish("adapt", prepared.newcomers))
    up, down = (sum((getattr(r, way) for r in run_log.rounds), Ledger()) for way in ("up", "down"))
    summary: dict[str, Any] = {
        "sparsona": __version__,
        "method": experiment.method,
        "options": experiment.options,
        "data": experiment.data,
        "model": experiment.model,
        "weights": setup.task.layout.size,
        "clients": len(setup.task.clients),
        "partition": experiment.partition,
        "rounds": experiment.rounds,
        "seed": experiment.seed,
        "metric": setup.objective.metric_name,
        setup.objective.metric_name: {point: run_log.last(point) for point in POINTS if run_log.last(point)},
        "picked": _picked(run_log),
        "bytes": {"up": up.total, "down": down.total, "parts": {"up": _parts(up), "down": _parts(down)}},
        "paper_bytes": {
            "up": sum(r.paper_up for r in run_log.rounds),
            "down": sum(r.paper_down for r in run_log.rounds),
        },
        "flops": sum(r.flops for r in run_log.rounds),
        "simulated_seconds": round(rounds.clock, 3),
        "seconds": round(rounds.seconds, 3),
        "peak_rss_mb": round(max(_peak_rss_mb(), getattr(rounds.engine, "peak_rss_mb", 0.0)), 1),
        "digest": _digest(rounds),
    }
    if joined:
        summary["new_clients"] = _joined(joined, joining, setup)
    similarity, network = similarity_of(rounds.server), network_of(rounds.server)
    if folder is not None:
        if similarity is not None:
            save(similarity, folder.path)
        if network is not None:
            save_network(network, folder.path)
        folder.write_summary(summary)
    path = folder.path if folder else None
    return Result(summary, tuple(run_log.rounds), models, run_log.scores, path, similarity, network)


def _digest(rounds: Rounds) -> str:
    """sha256 over the server's state and those of all clients."""
    whole = hashlib.sha256(digest(rounds.server).encode())
    for client, value in rounds.engine.store.digests(rounds.setup.task.clients).items():
        whole.update(f"\n{client} {value}".encode())
    return whole.hexdigest()


def _parts(ledger: Ledger) -> dict[str, float]:
    return {kind: value for kind, value in dataclasses.asdict(ledger).items() if value}


def _picked(run_log: RunLog) -> dict[str, Any]:
    picks = {point: run_log.picked(point) for point in POINTS}
    return {p: {"round": r.round, **r.scores[p]} for p, r in picks.items() if r is not None}


def _joined(outcomes: list[Outcome], joining: list[Outcome], setup: Setup) -> dict[str, Any]:
    """What new clients scored, and the bytes by which they joined and got their models."""
    sizes = {o.job.client: len(setup.federation.splits[o.job.client].test) for o in outcomes}
    scores = {p: {o.job.client: o.scores[p].test for o in outcomes if p in o.scores} for p in ("pre", "post")}
    higher = setup.objective.higher_is_better
    return {
        "count": len(outcomes),
        setup.objective.metric_name: {p: summarise(found, sizes, higher) for p, found in scores.items()},
        "bytes": {
            "up": sum(len(o.frame.data) for o in joining),
            "down": sum(len(o.job.down) for o in (*joining, *outcomes)),
        },
    }


def _notes(prepared: Prepared) -> dict[str, str]:
    """What a user of a model file must know besides the weights."""
    data, experiment = prepared.setup.federation.data, prepared.experiment
    return {
        "sparsona": __version__,
        "method": experiment.method,
        "data": experiment.data,
        "model": experiment.model,
        "mean": repr(data.mean),
        "std": repr(data.std),
        "class_names": repr(data.class_names),
    }


def _peak_rss_mb() -> float:
    """The most memory that this process or one of its workers has held."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


@contextmanager
def _repeatable() -> Iterator[None]:
    """One torch thread, so that sums have one order whatever the machine's cores; no choice of kernels by timing."""
    before = torch.get_num_threads(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[1:]
