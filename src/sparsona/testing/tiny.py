"""A federation of a few small images per client, and runs of it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import Dataset
from sparsona.engines.inprocess import InProcess
from sparsona.errors import ContractError
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import EVERYONE, Schedule
from sparsona.federation.setup import Setup
from sparsona.method import Method, Task
from sparsona.partition._split import federate
from sparsona.personal.layer import METHOD_ALONE, PersonalLayer
from sparsona.runs.records import RoundReport
from sparsona.training.config import TrainConfig
from sparsona.training.objective import classification
from sparsona.training.vector import FlatModule

ROUNDS = 3
MEAN = PersonalLayer(average=0.5)
"""The personal layer in checks, since it must work over every method."""


def tiny_setup(
    method: Method[Any, Any],
    clients: int = 3,
    rounds: int = ROUNDS,
    personal: PersonalLayer = METHOD_ALONE,
    frozen: bool = False,
) -> Setup:
    """A federation of a few small images per client, real enough for every method; `frozen`: its first layer."""
    rng = np.random.default_rng(7)
    count, classes = 40 * max(clients, 2), 4
    labels = np.arange(count, dtype=np.int64) % classes
    centres = rng.uniform(0, 160, (classes, 1, 6, 6))
    inputs = np.clip(centres[labels] + rng.normal(0, 40, (count, 1, 6, 6)), 0, 255).astype(np.uint8)
    data = Dataset("tiny", inputs, labels, classes, mean=(0.3,), std=(0.3,))
    chance = Chance(11)
    federation = federate(data, "dirichlet-classes:1.0" if clients > 1 else "iid", clients, chance)
    with chance.torch("initial weights"):
        module = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.ReLU(), nn.Linear(5, 4)
        )
    module[0].requires_grad_(not frozen)
    flat = FlatModule(module)
    names = tuple(sorted(federation.clients))
    task = Task(flat.layout, flat.read(), names, rounds, (1, 6, 6), classes, chance)
    config = TrainConfig(batch=16, lr=0.05)
    return Setup(method, task, federation, module, classification(), config, personal=personal)


def run(
    method: Method[Any, Any],
    *,
    clients: int = 3,
    rounds: int = ROUNDS,
    schedule: Schedule = EVERYONE,
    engine: type[InProcess] = InProcess,
    checkpoint: Path | None = None,
    stop: int = 0,
    resume: bool = False,
    config: TrainConfig | None = None,
    personal: PersonalLayer = MEAN,
    frozen: bool = False,
) -> Rounds:
    """A run of the tiny federation, and the personal models at its end; `stop` is a round after which it is stopped."""
    setup = tiny_setup(method, clients, rounds, personal, frozen)
    setup = dataclasses.replace(setup, config=config or setup.config)
    loop = assemble(setup, engine(setup), schedule, checkpoint=checkpoint)
    if resume:
        loop.resume()
    if stop:

        def interrupt(report: RoundReport) -> None:
            if report.round >= stop:
                raise KeyboardInterrupt

        try:
            loop.run(interrupt)
        except KeyboardInterrupt:
            return loop
    loop.run()
    none_refused(loop)
    for outcome in loop.finish("personal", setup.task.clients):
        if outcome.model is None:
            raise ContractError(f"personal_model() gave no model for {outcome.client}")
    return loop


def none_refused(loop: Rounds) -> None:
    """Raise an error if the server refused a reply."""
    for round, client, reason in loop.refused:
        raise ContractError(f"the server refuses the honest reply of {client} in round {round + 1}: {reason}")
