"""For tests of methods: a small run whose server states are kept, and a client's handle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import EVERYONE, Plan, Schedule
from sparsona.federation.setup import Setup
from sparsona.method import Method, Task
from sparsona.methods.fedspa import FedSpa
from sparsona.methods.sub_fedavg import SubFedAvg
from sparsona.partition._split import federate
from sparsona.testing import tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner


@dataclass
class Watched:
    """A run, and the server's states: the first one and that after every round."""

    rounds: Rounds
    servers: list[Any] = field(default_factory=list)

    @property
    def task(self) -> Task:
        return self.rounds.setup.task

    def mask(self, client: str, after: int) -> np.ndarray:
        """The mask of `client` after so many rounds."""
        method = self.rounds.setup.method
        assert isinstance(method, FedSpa | SubFedAvg)
        mask: np.ndarray = self.servers[after].mask(client, method.first_mask(self.task, client))
        return mask


def watch(
    method: Method[Any, Any],
    *,
    rounds: int = 4,
    clients: int = 3,
    schedule: Schedule = EVERYONE,
    change: Callable[[Setup], Setup] = lambda setup: setup,
) -> Watched:
    setup = change(tiny_setup(method, clients, rounds))
    loop = assemble(setup, InProcess(setup), schedule, LAST_ROUND)
    out = Watched(loop, [loop.server])
    loop.run(lambda _: out.servers.append(loop.server))
    return out


def local_of(setup: Setup, client: str = "c0", round: int = 0) -> Local:
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    return Local(client, round, setup.task, setup.config, setup.federation.splits[client], runner)


def equal_shares(setup: Setup) -> Setup:
    """Every client with the same number of samples, and a config with everything switched on."""
    clients = len(setup.task.clients)
    federation = federate(setup.federation.data, "iid", clients, setup.task.chance)
    config = TrainConfig(epochs=2, batch=16, lr=0.05, momentum=0.9, weight_decay=5e-4, clip=10.0, decay=0.998)
    return replace(setup, federation=federation, config=config)


@dataclass(frozen=True)
class LoseOnce:
    """Everyone takes part; the reply of one client in one round is lost."""

    client: str
    round: int

    def plan(self, round: int, idle: Any, chance: Chance) -> Plan:
        lost = frozenset({self.client}) if round == self.round else frozenset()
        return Plan(tuple(sorted(idle)), lost=lost)
