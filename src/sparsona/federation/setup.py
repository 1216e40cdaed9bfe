"""One experiment, resolved: what every worker and the server's loop are built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import Federation
from sparsona.layout import Layout
from sparsona.method import ClientId, Method, Task
from sparsona.personal.kept import KeepName
from sparsona.personal.layer import METHOD_ALONE, PersonalLayer
from sparsona.privacy.mechanism import Mechanism
from sparsona.training.config import TrainConfig
from sparsona.training.fused import TrainerName
from sparsona.training.objective import Objective
from sparsona.wire import Limit, PackingName


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to run any client of an experiment, and the server to check their replies.

    `max_update_norm`: a reply whose update exceeds this many times the others' median is left out (0: none is).
    `max_weight`: in a mean no client counts more than so many times the median client, nor more than all the others
    together, by the rows that they have declared. None: by its rows alone.
    `max_epochs`: no training on a client's own samples takes more passes, whatever the method asks for.
    `least_rows`: no batch of a client's own samples is smaller, and no label is counted that fewer samples have.
    `keep`: which of the models that a client has used is its model in the end.
    `privacy`: the mechanism of each client with a privacy budget; None: no run of this set-up has one.
    `client_chance`: the source of a client's own randomness, such as the order of its batches; None: the task's.
    """

    method: Method[Any, Any]
    task: Task
    federation: Federation
    module: nn.Module
    objective: Objective
    config: TrainConfig
    device: str = "cpu"
    trainer: TrainerName = "plain"
    packing: PackingName = "tight"
    max_update_norm: float = 0.0
    max_weight: float | None = None
    max_epochs: int | None = None
    personal: PersonalLayer = METHOD_ALONE
    least_rows: int = 1
    client_chance: Chance | None = None
    keep: KeepName = "last"
    privacy: Mapping[ClientId, Mechanism] | None = None

    @property
    def test_rows(self) -> dict[ClientId, int]:
        """The number of test rows of each client."""
        return {client: len(split.test) for client, split in self.federation.splits.items()}

    def limit(self) -> Limit:
        """The most numbers that one message may hold."""
        return Limit(self.method.max_numbers(self.task) + Layout.of_buffers(self.module).size)
