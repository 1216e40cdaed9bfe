"""From settings to a run that can start: names looked up, data loaded and dealt out, the model made and tried."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from sparsona.chance import Chance
from sparsona.data import load
from sparsona.data.dataset import Dataset, Federation
from sparsona.engines import ENGINES
from sparsona.engines.pool import cores
from sparsona.engines.pool.shared import picklable
from sparsona.errors import InputError
from sparsona.experiment import Experiment, build
from sparsona.federation.schedule import Schedule
from sparsona.federation.setup import Setup
from sparsona.method import ClientId, Method, Task
from sparsona.methods import METHODS
from sparsona.models import MODELS
from sparsona.partition._split import federate
from sparsona.registry import bind, split_spec
from sparsona.training.batched import stack_of
from sparsona.training.objective import Objective, classification, multilabel, regression
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import Flat

log = logging.getLogger(__name__)
GIVEN = "(given in Python)"


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
        experiment.packing,
    )
    runner = ModelRunner(module, dataset, setup.objective, chance, experiment.device)
    _probe(runner, dataset, shape)
    engine = _engine(experiment, setup, runner) if experiment.engine == "auto" else experiment.engine
    experiment = experiment.model_copy(update={"engine": engine, "trainer": setup.trainer})
    return Prepared(experiment, setup, newcomers, schedule or experiment.schedule)


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


def _engine(experiment: Experiment, setup: Setup, runner: ModelRunner) -> str:
    """The pool, unless its start would take longer than it saves. Results do not depend on the choice."""
    if min(experiment.workers or cores(), cores()) < 2 or experiment.device != "cpu":
        return "inprocess"
    config, evaluation = setup.config, experiment.evaluation
    turns = experiment.schedule.sample
    if evaluation.every and evaluation.post == "everyone":
        turns += (1 - turns) / evaluation.every
    examples = [len(share.train) for share in setup.federation.splits.values()]
    steps = sum(config.steps or config.epochs * math.ceil(n / config.batch) for n in examples) * config.repeats
    runner.flops = 0
    runner.count(1)
    seconds = turns * experiment.rounds * steps * (SECONDS_A_STEP + config.batch * runner.flops * SECONDS_A_FLOP)
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


def _probe(runner: ModelRunner, data: Dataset, shape: tuple[int, ...]) -> None:
    """Ask the model about two samples, so that one that does not fit is named before anything is trained."""
    try:
        inputs, targets = runner.batch(np.arange(2) % len(data))
        answer = runner.forward(runner.flat.read(), inputs)
        losses = runner.objective.loss(answer, targets)
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
