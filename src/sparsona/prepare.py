"""Prepare a run: look names up, load and partition the data, make and try the model."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sparsona.base import base_hash, copied
from sparsona.chance import Chance
from sparsona.data import PATHS, Columns, absolute, from_python, load
from sparsona.data._tables import agreed_dataset
from sparsona.data.dataset import ClientSplit, Dataset, Federation
from sparsona.data.doubts import Doubt, Sites, doubts_of
from sparsona.data.fields import unpacking
from sparsona.data.schema.bounds import check_declared, without_rare
from sparsona.data.schema.exchange import Agreement, exchange, scaled_alone
from sparsona.data.schema.roles import ColumnSplit, along_of
from sparsona.data.schema.rows import Rows
from sparsona.data.schema.schema import Schema, published_schema
from sparsona.data.schema.understood import Line, understood
from sparsona.engines import ENGINES
from sparsona.engines.choice import choose_engine, training_seconds
from sparsona.errors import InputError
from sparsona.experiment import Experiment, build, is_own, without_auto
from sparsona.export.predict import objective_of
from sparsona.federation.budget import mechanisms
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.schedule import Schedule
from sparsona.federation.setup import Setup
from sparsona.method import ClientId, Method, Task
from sparsona.methods import METHODS
from sparsona.models._build import build_model
from sparsona.partition._split import federate
from sparsona.registry import GIVEN, split_spec
from sparsona.report.loggers import LOGGERS
from sparsona.runs.about import RateSearch
from sparsona.training.adapters import TrainedPart
from sparsona.training.config import TrainConfig
from sparsona.training.fused import choose_trainer
from sparsona.training.objective import Objective, multilabel, output_bias
from sparsona.training.probe import called, complete, probe
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """An experiment that is ready to run."""

    experiment: Experiment
    setup: Setup
    newcomers: tuple[ClientId, ...]
    schedule: Schedule
    agreement: Agreement
    """Each client's schema, and the bytes of the agreement."""
    loaded: Dataset
    """The data set before the agreement; several experiments may share it."""
    seconds: float
    """Estimated seconds of training on one core."""
    rows: Rows | None = None
    """The raw rows of a table, for summaries and warnings."""
    auto: bool = False
    """True if the learning rate is still to be chosen (:func:`sparsona.rate.settled`)."""
    search: RateSearch | None = None
    """The search of the learning rate; None if the rate was given."""

    def understood(self) -> list[Line]:
        """Return the summary of how a table was read; empty for published data."""
        if self.rows is None:
            return []
        return understood(self.rows, self.setup.federation.splits, self.agreement, self.experiment.split.by)

    @cached_property
    def sites(self) -> Sites | None:
        """Return the rows of a table by client, to look for doubtful values; None for published data."""
        if self.rows is None:
            return None
        data, splits = self.loaded, self.setup.federation.splits
        task = next(iter(self.agreement.schemas.values())).task
        natural = split_spec(self.experiment.partition)[0] == "groups"
        named = split_spec(self.experiment.data)[0] in PATHS  # a report may be sent on: it names no folder
        called = [Path(place).name if named else place for place in data.places]
        places = dict(zip(data.group_names, called, strict=False))
        by, metric = self.experiment.split.by, self.setup.objective.metric_name
        return Sites(self.rows, splits, task, places, by, natural, data.name, metric)

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """Return the warnings about a table."""
        return () if self.sites is None else doubts_of(self.sites)


@dataclass(frozen=True)
class EarlierRun:
    """A finished run that gets new data: its schema, and the known clients.

    `train` is False if the new clients only join, without taking part in a round.
    """

    schema: Schema
    clients: tuple[ClientId, ...]
    train: bool = True


def prepare(
    settings: Mapping[str, Any],
    *,
    method: Method[Any, Any] | None = None,
    data: Any = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    objective: Objective | None = None,
    schedule: Schedule | None = None,
    loaded: Dataset | None = None,
    earlier: EarlierRun | None = None,
    origin: str = "the experiment",
) -> Prepared:
    """Check the settings, load and deal out the data, agree on their schema, make the model.

    Objects given replace the named ones; `data` may be a Dataset or anything that
    :func:`sparsona.data.from_python` takes. `loaded` is the named data set as an earlier call has loaded it. The
    rows follow the schema of an `earlier` run, if given.
    """
    for what, given in {"method": method, "data": data, "model": model, "schedule": schedule}.items():
        if given is not None and settings.get(what, GIVEN) != GIVEN:
            raise InputError(f"{origin}: {what} is given as an object and as {settings[what]!r}: leave one of them out")
    if data is not None:
        settings = {**settings, "data": GIVEN}
    if method is not None:
        name = next((name for name, kind in METHODS if kind is type(method)), type(method).__name__)
        settings = {**settings, "method": name}
    settings, auto = without_auto(settings)
    experiment, method = build(settings, origin, method)
    for setting in () if method.alone else method.unused:  # others of a comparison may read it
        if getattr(experiment.training, setting) != getattr(TrainConfig(), setting):
            unread = "training.%s changes nothing in %s, which has options of its own for that"
            log.warning(unread, setting, experiment.method)
    experiment = experiment.model_copy(update={"data": absolute(experiment.data, Path.cwd())})
    if experiment.device != "cpu" and not experiment.device.startswith("cuda"):
        raise InputError(f"unknown device {experiment.device!r}: choose cpu or cuda")
    if experiment.device != "cpu" and not torch.cuda.is_available():
        raise InputError(f"device {experiment.device!r} is not there: this torch sees no CUDA; choose --device cpu")
    if experiment.engine != "auto":
        ENGINES.get(experiment.engine)
    for name in experiment.report_to:
        LOGGERS.get(name)
    along = along_of(experiment.split.by)
    source = loaded or _dataset(experiment, data, along)
    dataset = source
    experiment = _resolve(experiment, settings, dataset)
    chance = Chance(experiment.seed)
    split, kind, count = experiment.split, experiment.partition, experiment.clients
    shares = {"test": split.test, "validation": split.validation}
    federation = federate(dataset, kind, count, chance, **shares, use=split.use, along=along, repeat=split.repeat)
    experiment = experiment.model_copy(update={"clients": len(federation.clients)})
    newcomers = _newcomers(federation, experiment.new_clients, chance)
    if earlier is not None and not earlier.train:
        newcomers = tuple(federation.clients)
    if dataset.rows is not None:
        if experiment.privacy.is_on:
            check_declared(dataset.rows)
        rare_out = without_rare(dataset.rows, federation.splits.values(), experiment.least_rows)
        dataset = dataclasses.replace(dataset, rows=rare_out)
        federation = Federation(dataset, federation.splits)
    agreement = _agreement(federation, newcomers, earlier)
    rows = dataset.rows
    if rows is not None:
        dataset = agreed_dataset(dataset, federation.splits, agreement)
        late = newcomers if earlier is None else federation.clients
        known = {client: _of_known_classes(dataset, federation.splits[client]) for client in late}
        federation = Federation(dataset, {**federation.splits, **known})
    clients = tuple(sorted(k for k in federation.clients if k not in newcomers))
    if earlier is not None and not earlier.train:
        clients = earlier.clients
    if schedule is None:
        experiment = experiment.model_copy(update={"schedule": experiment.schedule.among(clients)})
    shape = tuple(dataset.inputs.shape[1:])
    if dataset.has_missing:  # beside each column stands whether it was missing
        shape = (2 * shape[0], *shape[1:])
    if dataset.redrawn is not None:
        varied = dataclasses.replace(experiment.training, augment=True)
        experiment = experiment.model_copy(update={"training": varied})
    trained = TrainedPart(experiment.trainable, experiment.lora, experiment.base)
    module = trained.of(_module(experiment.model, model, shape, dataset, chance), chance)
    experiment = experiment.model_copy(update={"base": base_hash(module)})
    unpacking(module, dataset.fields)
    scaled = rows is not None and rows.scaling == "agreed" and rows.inputs != "tokens"
    if experiment.base and scaled and "scaling" not in settings.get("columns", {}):
        log.warning("inputs are standardised before the net: scaling='none' gives them to it as they are")
    flat = FlatModule(module)
    if method.needs_classes and not dataset.classes:
        raise InputError(f"{method.needs_classes}: it needs a data set with classes")
    if experiment.training.class_weights != "none" and not dataset.classes:
        raise InputError("training.class_weights are for classification: leave them out")
    if experiment.training.logit_prior:
        output_bias(flat.layout, dataset.classes)
    is_text = dataset.inputs.ndim == 2 and dataset.inputs.dtype.kind != "f"
    personal = experiment.personal.resolved(is_text, flat.buffer_layout.size > 0)
    experiment = experiment.model_copy(update={"personal": personal})
    task = Task(flat.layout, flat.read(), clients, experiment.rounds, shape, dataset.classes, chance)
    setup = Setup(
        method,
        task,
        federation,
        module,
        _objective(objective, dataset, next(iter(agreement.schemas.values())), experiment.evaluation),
        experiment.training,
        experiment.device,
        choose_trainer(experiment.trainer, module, dataset.inputs, experiment.device),
        experiment.packing,
        experiment.max_update_norm,
        personal=experiment.personal,
        least_rows=experiment.least_rows,
        keep=experiment.evaluation.keep,
    )
    if experiment.privacy.is_on:
        if earlier is not None:
            raise InputError("with a privacy budget a finished run does not go on: its noise was for its own rounds")
        sample = experiment.schedule.sample if schedule is None else 1.0
        planned = mechanisms(setup, experiment.privacy, experiment.evaluation, sample)
        setup = dataclasses.replace(setup, privacy=planned)
    runner = ModelRunner(module, dataset, setup.objective, chance, experiment.device)
    probe(runner, federation, shape)
    seconds = training_seconds(experiment, setup, runner)
    engine = choose_engine(experiment, setup, seconds) if experiment.engine == "auto" else experiment.engine
    experiment = experiment.model_copy(update={"engine": engine, "trainer": setup.trainer})
    plan = schedule or experiment.schedule
    return Prepared(experiment, setup, newcomers, plan, agreement, source, seconds, rows, auto)


def _dataset(experiment: Experiment, given: Any, along: ColumnSplit | None) -> Dataset:
    if given is None:
        return load(experiment.data, columns=experiment.columns, along=along)
    if not isinstance(given, Dataset):
        return from_python(given, name=GIVEN, columns=experiment.columns, along=along)
    if experiment.columns != Columns() or along is not None:
        raise InputError("a Dataset has its columns already: give the arrays or tables themselves to declare them")
    return given


def _agreement(federation: Federation, newcomers: tuple[ClientId, ...], earlier: EarlierRun | None) -> Agreement:
    data, splits = federation.data, federation.splits
    if earlier is not None and data.rows is not None:
        rows, schema = data.rows, earlier.schema
        missing = set(schema.columns) - set(rows.order)
        if missing:
            raise InputError(f"the new rows have no column {min(missing)!r}, which the run was trained on; add it")
        if rows.block is not None and rows.block.shape[1:] != schema.shape:
            shape = rows.block.shape[1:]
            raise InputError(f"the new samples have shape {shape}; the run was trained on {schema.shape}")
        return Agreement({client: scaled_alone(schema, rows, split.train) for client, split in splits.items()})
    if data.rows is None:
        return Agreement(dict.fromkeys(splits, published_schema(data)))
    return exchange(data.rows, {client: split.train for client, split in splits.items()}, newcomers)


def _of_known_classes(data: Dataset, split: ClientSplit) -> ClientSplit:
    """Drop a new client's training samples of unknown classes; such test samples count as wrong."""
    if not data.classes:
        return split
    train, validation = (part[data.targets[part] >= 0] for part in (split.train, split.validation))
    if len(train) == len(split.train):
        return split
    if not len(train):
        raise InputError(
            f"the new client {split.name!r} has only classes that no other client trains on: "
            "choose another seed, or leave new_clients out"
        )
    log.warning(
        "%d of %d training samples of the new client %s are left out: no other client has their class",
        len(split.train) - len(train), len(split.train), split.name,
    )  # fmt: skip
    return dataclasses.replace(split, train=train, validation=validation)


def _resolve(experiment: Experiment, given: Mapping[str, Any], data: Dataset) -> Experiment:
    """Fill in settings that depend on the data: the model, and the partition of data with owners."""
    update: dict[str, Any] = {}
    if experiment.model == "auto":
        update["model"] = data.model
    owned = data.groups is not None and (data.rows is not None or is_own(experiment.data))
    by_group = split_spec(experiment.partition)[0] == "groups" and "partition" in given
    if by_group and "clients" not in given:
        update["clients"] = 0
    if "partition" not in given:
        if owned:
            update["partition"] = "groups"
            if "clients" not in given:
                update["clients"] = 0
            elif 0 < experiment.clients < len(data.group_names):
                raise InputError(
                    f"{data.name} has {len(data.group_names)} clients, {experiment.clients} are asked for; leave "
                    f"--clients out, or pass --partition groups to draw {experiment.clients} of them by chance"
                )
        elif data.rows is not None and data.groups is None:
            kind, _, path = experiment.data.partition(":")
            what, how = "data is one table", "give client=COLUMN, or one table per client"
            if kind in PATHS:
                what, how = f"{path} is one file", "pass --client COLUMN"
            if kind == "npz":
                how = "add an array client to it"
            raise InputError(f"{what}: {how}, or --partition to deal its rows out")
        elif data.classes == 0:
            update["partition"] = "iid"
    return experiment.model_copy(update=update)


def _objective(given: Objective | None, data: Dataset, schema: Schema, evaluation: Evaluation) -> Objective:
    unknown = schema.scaling == "published" and not data.classes and bool(np.isnan(data.targets).any())
    found = given or (multilabel() if unknown else objective_of(schema))
    labels = schema.classes or schema.targets
    return found.measured_by(evaluation.metrics, labels, evaluation.positive, evaluation.threshold)


def _newcomers(federation: Federation, share: float, chance: Chance) -> tuple[ClientId, ...]:
    names = sorted(federation.clients)
    count = int(share * len(names) + 0.5)
    if share and count in (0, len(names)):
        raise InputError(f"new_clients={share:g} of {len(names)} clients leaves {count} new ones: change either")
    chosen = chance.rng("newcomers").choice(len(names), count, replace=False)
    return tuple(names[i] for i in sorted(chosen))


def _module(
    name: str,
    given: nn.Module | Callable[[], nn.Module] | None,
    shape: tuple[int, ...],
    data: Dataset,
    chance: Chance,
) -> nn.Module:
    """Make the model; the trained part of a given one is copied, so that the caller's module does not change."""
    if isinstance(given, nn.Module):
        return copied(complete(given))
    with chance.torch("initial weights"):
        if given is not None:
            return complete(called(given))
        return build_model(name, shape, outputs(data), data.vocabulary)


def outputs(data: Dataset) -> int:
    """Return the number of outputs per sample."""
    return data.classes or (int(data.targets.shape[1]) if data.targets.ndim == 2 else 1)
