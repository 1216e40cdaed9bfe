"""Run an experiment from Python: `sparsona.run` and what it returns."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import logging
import math
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import nn

from sparsona.batched import stack_of
from sparsona.chance import Chance
from sparsona.checkpoint import Keeper
from sparsona.client import Outcome, Setup
from sparsona.data import from_arrays, load
from sparsona.dataset import Array, Dataset, Federation
from sparsona.engines import ENGINES
from sparsona.engines._shared import picklable
from sparsona.engines.pool import cores
from sparsona.errors import InputError
from sparsona.evaluate import POINTS, summarise
from sparsona.experiment import Experiment, assign, build
from sparsona.local import Bench
from sparsona.method import ClientId, Method, Model, Task
from sparsona.methods import METHODS
from sparsona.models import MODELS
from sparsona.objective import Objective, classification, multilabel, regression
from sparsona.ops.pairwise import Similarity
from sparsona.partition._split import federate
from sparsona.records import Journal, RoundReport
from sparsona.registry import bind, split_spec
from sparsona.report.similarity import save, similarity_of
from sparsona.rounds import Rounds
from sparsona.rundir import RunDir
from sparsona.schedule import Schedule
from sparsona.state import digest
from sparsona.vector import Flat
from sparsona.version import __version__
from sparsona.wire import Ledger

log = logging.getLogger(__name__)
GIVEN = "(given in Python)"


@dataclass(frozen=True)
class PersonalModel:
    """One client's own model."""

    client: ClientId
    model: Model
    _bench: Bench = field(repr=False)

    def predict(self, inputs: Array) -> Array:
        """Predictions for raw inputs, of the shape and units of the data that it was trained on."""
        return self._bench.predict(self.model, np.ascontiguousarray(inputs))

    def tensors(self) -> dict[str, Array]:
        """The weights by name, where the model is one vector."""
        if not isinstance(self.model, np.ndarray):
            raise InputError(f"the model of {self.client} is a {type(self.model).__name__}, not one set of weights")
        return dict(self._bench.layout.named(self.model))


class Models(Mapping[ClientId, PersonalModel]):
    """Every client's own model. Those that a run directory holds are read when they are asked for, and models that
    several clients share are held once: memory does not grow with the clients if it need not."""

    def __init__(self, clients: tuple[ClientId, ...], bench: Bench, folder: RunDir | None) -> None:
        self._bench = bench
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
            model = np.concatenate([named[tensor.name].reshape(-1) for tensor in self._bench.layout.tensors])
        return PersonalModel(client, model, self._bench)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


@dataclass(frozen=True)
class Result:
    """What a run gives: a report a round, a model a client, and the summary that summary.json holds.

    `similarity` says who is like whom, where the method has measured it.
    """

    summary: dict[str, Any]
    history: tuple[RoundReport, ...]
    models: Mapping[ClientId, PersonalModel]
    scores: Mapping[ClientId, Mapping[str, float]]
    path: Path | None = None
    similarity: Similarity | None = None


@dataclass(frozen=True)
class Prepared:
    """An experiment with everything looked up, loaded and dealt out: ready to run."""

    experiment: Experiment
    setup: Setup
    newcomers: tuple[ClientId, ...]
    schedule: Schedule


def prepare(
    settings: Mapping[str, Any],
    *,
    method: Method[Any, Any] | None = None,
    data: Dataset | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    objective: Objective | None = None,
    schedule: Schedule | None = None,
    origin: str = "the experiment",
) -> Prepared:
    """Check the settings, load and deal out the data, make the model. Objects given replace the named ones."""
    if method is not None:
        settings = {**settings, "method": _name(method), "options": {}}
        experiment = Experiment(**{**settings, "options": dataclasses.asdict(method)})
    else:
        experiment, method = build(settings, origin)
    if experiment.device != "cpu":
        _check_device(experiment.device)
    if experiment.engine != "auto":
        ENGINES.get(experiment.engine)
    dataset = load(experiment.data) if data is None else data
    experiment = _resolve(experiment, settings, dataset)
    chance = Chance(experiment.seed)
    federation = federate(
        dataset,
        experiment.partition,
        experiment.clients,
        chance,
        test=experiment.split.test,
        validation=experiment.split.validation,
        use=experiment.split.use,
    )
    experiment = experiment.model_copy(update={"clients": len(federation.clients)})
    newcomers = _newcomers(federation, experiment.new_clients, chance)
    clients = tuple(sorted(k for k in federation.clients if k not in newcomers))
    if schedule is None:
        experiment = experiment.model_copy(update={"schedule": experiment.schedule.among(clients)})
    shape = _shape(dataset)
    module = _module(experiment.model, model, shape, dataset, chance)
    flat = Flat(module)
    task = Task(flat.layout, flat.read(), clients, experiment.rounds, shape, dataset.classes, chance)
    setup = Setup(
        method,
        task,
        federation,
        module,
        objective or _objective(dataset),
        experiment.training,
        experiment.device,
        _trainer(experiment, module),
    )
    bench = Bench(module, dataset, setup.objective, chance, experiment.device)
    _probe(bench, dataset, shape)
    engine = _engine(experiment, setup, bench) if experiment.engine == "auto" else experiment.engine
    experiment = experiment.model_copy(update={"engine": engine, "trainer": setup.trainer})
    return Prepared(experiment, setup, newcomers, schedule or experiment.schedule)


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
    return execute(prepared, RunDir(Path(out)) if out is not None else None, resume, on_round)


def execute(
    prepared: Prepared,
    folder: RunDir | None = None,
    resume: bool = False,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    on_start: Callable[[int], None] = lambda done: None,
) -> Result:
    """Run what :func:`prepare` made; into `folder`, where there is one."""
    setup, experiment = prepared.setup, prepared.experiment
    if folder is not None:
        folder.open(experiment, resume)
    sizes = {name: len(share.test) for name, share in setup.federation.shares.items()}
    journal = Journal(sizes, setup.objective.higher_is_better, folder.records if folder else None)
    keeper = Keeper(folder.checkpoint) if folder else None
    with _repeatable():
        engine = ENGINES.get(experiment.engine)(setup, experiment.workers)
        try:
            rounds = Rounds(setup, engine, prepared.schedule, experiment.evaluation, journal, keeper)
            if resume:
                rounds.resume()
            on_start(rounds.done)
            rounds.run(on_round)
            return _finish(prepared, rounds, folder)
        finally:
            engine.close()


def _finish(prepared: Prepared, rounds: Rounds, folder: RunDir | None) -> Result:
    setup, experiment, journal = prepared.setup, prepared.experiment, rounds.journal
    notes = _notes(prepared)
    bench = Bench(setup.module, setup.federation.data, setup.objective, setup.task.chance, setup.device)
    models = Models(setup.task.clients, bench, folder)
    for outcome in rounds.finish("personal", setup.task.clients):
        assert outcome.model is not None
        if folder is not None:
            folder.save_model(outcome.job.client, outcome.model, setup.task.layout, notes)
        models.add(outcome.job.client, outcome.model)
    joined = list(rounds.finish("adapt", prepared.newcomers))
    up, down = (sum((getattr(r, way) for r in journal.rounds), Ledger()) for way in ("up", "down"))
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
        setup.objective.metric_name: {point: journal.last(point) for point in POINTS if journal.last(point)},
        "picked": _picked(journal),
        "bytes": {"up": up.total, "down": down.total, "parts": {"up": _parts(up), "down": _parts(down)}},
        "paper_bytes": {
            "up": sum(r.paper_up for r in journal.rounds),
            "down": sum(r.paper_down for r in journal.rounds),
        },
        "flops": sum(r.flops for r in journal.rounds),
        "simulated_seconds": round(rounds.clock, 3),
        "seconds": round(rounds.seconds, 3),
        "peak_rss_mb": round(max(_peak_rss_mb(), getattr(rounds.engine, "peak_rss_mb", 0.0)), 1),
        "digest": _digest(rounds),
    }
    if joined:
        summary["new_clients"] = _joined(joined, setup)
    similarity = similarity_of(rounds.server)
    if folder is not None:
        if similarity is not None:
            save(similarity, folder.path)
        folder.write_summary(summary)
    path = folder.path if folder else None
    return Result(summary, tuple(journal.rounds), models, journal.scores, path, similarity)


def _digest(rounds: Rounds) -> str:
    """sha256 over the server's state and those of all clients."""
    whole = hashlib.sha256(digest(rounds.server).encode())
    for client, value in rounds.engine.store.digests(rounds.setup.task.clients).items():
        whole.update(f"\n{client} {value}".encode())
    return whole.hexdigest()


def _parts(ledger: Ledger) -> dict[str, float]:
    return {kind: value for kind, value in dataclasses.asdict(ledger).items() if value}


def _picked(journal: Journal) -> dict[str, Any]:
    picks = {point: journal.picked(point) for point in POINTS}
    return {p: {"round": r.round, **r.scores[p]} for p, r in picks.items() if r is not None}


def _joined(outcomes: list[Outcome], setup: Setup) -> dict[str, Any]:
    sizes = {o.job.client: len(setup.federation.shares[o.job.client].test) for o in outcomes}
    scores = {p: {o.job.client: o.scores[p].test for o in outcomes if p in o.scores} for p in ("pre", "post")}
    higher = setup.objective.higher_is_better
    return {
        "count": len(outcomes),
        setup.objective.metric_name: {p: summarise(found, sizes, higher) for p, found in scores.items()},
        "bytes": {"down": sum(len(o.job.down) for o in outcomes)},
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


def _resolve(experiment: Experiment, given: Mapping[str, Any], data: Dataset) -> Experiment:
    """Fill in what depends on the data: the model, and how data that come with their owners are dealt out."""
    update: dict[str, Any] = {}
    if experiment.model == "auto":
        update["model"] = data.model
    owned = data.groups is not None and split_spec(experiment.data)[0] in (GIVEN, "npz", "folder")
    if "partition" not in given:
        if owned:
            update["partition"] = "groups"
            if "clients" not in given:
                update["clients"] = 0
        elif data.classes == 0:
            update["partition"] = "iid"
    return experiment.model_copy(update=update)


def _trainer(experiment: Experiment, module: nn.Module) -> Literal["plain", "batched"]:
    """The trainer asked for, unless it cannot train this model: then the plain one, and a note."""
    if experiment.trainer == "plain":
        return "plain"
    stack = stack_of(module) if experiment.device == "cpu" else "it is for the CPU"
    if isinstance(stack, str):
        log.warning("the batched trainer does not take this model (%s): clients are trained one by one", stack)
        return "plain"
    return "batched"


def _engine(experiment: Experiment, setup: Setup, bench: Bench) -> str:
    """The pool, unless its start would take longer than it saves. Results do not depend on the choice."""
    if min(experiment.workers or cores(), cores()) < 2 or experiment.device != "cpu":
        return "inprocess"
    recipe, evaluation = setup.recipe, experiment.evaluation
    turns = experiment.schedule.sample
    if evaluation.every and evaluation.post == "everyone":
        turns += (1 - turns) / evaluation.every
    examples = [len(share.train) for share in setup.federation.shares.values()]
    steps = sum(recipe.steps or recipe.epochs * math.ceil(n / recipe.batch) for n in examples) * recipe.repeats
    bench.flops = 0
    bench.count(1)
    seconds = turns * experiment.rounds * steps * (SECONDS_A_STEP + recipe.batch * bench.flops * SECONDS_A_FLOP)
    return "pool" if seconds > WORTHWHILE and picklable(setup) else "inprocess"


SECONDS_A_STEP, SECONDS_A_FLOP = 3e-4, 1e-11
WORTHWHILE = 10.0
"""Seconds of work on one core from which on worker processes, which take two or three to start, pay."""


def _objective(data: Dataset) -> Objective:
    if data.classes:
        return classification()
    return multilabel() if data.targets.ndim == 2 or np.isnan(data.targets).any() else regression()


def _newcomers(federation: Federation, share: float, chance: Chance) -> tuple[ClientId, ...]:
    names = sorted(federation.clients)
    count = int(share * len(names) + 0.5)
    if share and count in (0, len(names)):
        raise InputError(f"new_clients={share:g} of {len(names)} clients leaves {count} new ones: change either")
    chosen = chance.rng("newcomers").choice(len(names), count, replace=False)
    return tuple(names[i] for i in sorted(chosen))


def _shape(data: Dataset) -> tuple[int, ...]:
    """The shape of a prepared sample: missing values double a table's columns."""
    shape = tuple(data.inputs.shape[1:])
    return (2 * shape[0], *shape[1:]) if data.has_missing else shape


def _module(
    name: str,
    given: nn.Module | Callable[[], nn.Module] | None,
    shape: tuple[int, ...],
    data: Dataset,
    chance: Chance,
) -> nn.Module:
    """The model; one that was given is copied, so that the caller's stays as it is."""
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    with chance.torch("initial weights"):
        if given is not None:
            return given()
        builder = MODELS.get(split_spec(name)[0])
        if data.vocabulary and split_spec(name)[0] != "text-embedding":
            raise InputError(f"model {name!r} does not read text: choose --model text-embedding for {data.name}")
        options = bind("model", name, builder, skip=2)
        if data.vocabulary and split_spec(name)[0] == "text-embedding":
            options.setdefault("vocabulary", data.vocabulary)
        outputs = data.classes or (data.targets.shape[1] if data.targets.ndim == 2 else 1)
        return builder(shape, outputs, **options)


def _probe(bench: Bench, data: Dataset, shape: tuple[int, ...]) -> None:
    """Ask the model about two samples, so that one that does not fit is named before anything is trained."""
    try:
        inputs, targets = bench.batch(np.arange(2) % len(data))
        answer = bench.forward(bench.flat.read(), inputs)
        losses = bench.objective.loss(answer, targets)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"the model does not fit {data.name}, whose samples have shape {shape}: {reason}") from None
    if data.classes and (answer.ndim != 2 or answer.shape[1] < data.classes):
        found = tuple(answer.shape[1:])
        raise InputError(f"the model gives outputs of shape {found}, but {data.name} has {data.classes} classes")
    if losses.shape != (2,):
        raise InputError(f"the loss must be one number an example, not of shape {tuple(losses.shape)} for two examples")


def _check_device(device: str) -> None:
    if not device.startswith("cuda"):
        raise InputError(f"unknown device {device!r}: choose cpu or cuda")
    if not torch.cuda.is_available():
        raise InputError(f"device {device!r} is not there: this torch sees no CUDA; choose --device cpu")


def _name(method: Method[Any, Any]) -> str:
    return next((name for name, kind in METHODS if kind is type(method)), type(method).__name__)


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
