"""The experiment as both sides of a network see it: what may run there, and a set-up without the others' data."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from sparsona.base import checked_base, is_file
from sparsona.chance import Chance
from sparsona.data.dataset import ClientSplit, Dataset, Federation
from sparsona.data.schema.schema import Schema
from sparsona.errors import InputError
from sparsona.experiment import Experiment
from sparsona.export.predict import objective_of
from sparsona.federation.schedule import Plan, Sampled
from sparsona.federation.setup import Setup
from sparsona.method import ClientId, Method, Task
from sparsona.models._build import build_model
from sparsona.training.adapters import TrainedPart
from sparsona.training.fused import choose_trainer
from sparsona.training.vector import FlatModule

REAL = ("sample", "deadline", "window", "devices")
"""Schedule settings that are allowed on a network; `devices` has no effect."""


def check_networkable(experiment: Experiment) -> None:
    """Raise `InputError` for settings that only a simulation supports."""
    for field in fields(Sampled):
        if field.name not in REAL and getattr(experiment.schedule, field.name) != field.default:
            raise InputError(f"schedule.{field.name} makes failures up, for simulations: drop it")
    if experiment.columns.client:
        raise InputError("columns.client is for a file of all clients: on a network, each node is one client; drop it")
    if experiment.new_clients:
        raise InputError("new_clients is for simulations: on a network, start another node; drop it")


def setup_of(
    experiment: Experiment,
    method: Method[Any, Any],
    schema: Schema,
    clients: tuple[ClientId, ...],
    federation: Federation,
    device: str = "cpu",
    max_epochs: int | None = None,
    least_rows: int = 1,
    client_chance: Chance | None = None,
    base: str = "",
) -> Setup:
    """Return the set-up of one side. The model follows from the schema and the seed, so that all sides build the same.

    `base` is the side's own file of frozen weights. Raises `InputError` if the experiment needs another base.
    """
    chance, shape = Chance(experiment.seed), schema.input_shape
    with chance.torch("initial weights"):
        module = build_model(experiment.model, shape, outputs_of(schema), schema.vocabulary)
    module = TrainedPart(experiment.trainable, experiment.lora, base or experiment.base).of(module, chance)
    if not is_file(experiment.base):
        checked_base(experiment.base, module)
    flat = FlatModule(module)
    task = Task(flat.layout, flat.read(), clients, experiment.rounds, shape, len(schema.classes), chance)
    wanted, labels = experiment.evaluation, schema.classes or schema.targets
    objective = objective_of(schema).measured_by(wanted.metrics, labels, wanted.positive, wanted.threshold)
    return Setup(
        method,
        task,
        federation,
        module,
        objective,
        experiment.training,
        device,
        choose_trainer(experiment.trainer, module, federation.data.inputs, device),
        packing=experiment.packing,
        max_update_norm=experiment.max_update_norm,
        max_epochs=max_epochs,
        personal=experiment.personal,
        least_rows=least_rows,
        client_chance=client_chance,
        keep=experiment.evaluation.keep,
    )


def outputs_of(schema: Schema) -> int:
    """Return the number of a model's outputs per sample."""
    return len(schema.classes) or len(schema.targets)


def fingerprint(setup: Setup) -> str:
    """Return a hash of the layout and the first weights. All sides must have the same one to understand each other."""
    whole = hashlib.sha256(repr(setup.task.layout.lengths).encode())
    whole.update(np.ascontiguousarray(setup.task.initial).data)
    return whole.hexdigest()


def without_data(schema: Schema, sizes: Mapping[ClientId, tuple[int, int, int]]) -> Federation:
    """Return the federation as the server knows it: the number of samples per client, and no sample."""
    kind = {"images": np.uint8, "tokens": np.int32}.get(schema.inputs, np.float32)
    classes = len(schema.classes)
    targets = np.zeros(0, np.int64) if classes else np.zeros((0, len(schema.targets)), np.float32)
    data = Dataset("(the owners' own)", np.zeros((0, *schema.input_shape), kind), targets, classes)
    nowhere = np.zeros((), np.int64)
    splits = {
        client: ClientSplit(client, *(np.broadcast_to(nowhere, (count,)) for count in counts))
        for client, counts in sizes.items()
    }
    return Federation(data, splits)


class RealTime:
    """A schedule on a network: clients are sampled as in a simulation, but the arrival of replies is real."""

    def __init__(self, sampled: Sampled) -> None:
        self._sampled = sampled

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        return replace(self._sampled.plan(round, idle, chance), timing=None)
