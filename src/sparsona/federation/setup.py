"""One experiment, resolved: the server's loop and every worker are built from it."""

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
    """All that a worker needs to run any client of an experiment, and the server to check replies.

    `max_update_norm`: refuse a reply whose update exceeds this many times the others' median (0: refuse none).
    `max_weight`: a client counts in a mean at most this many times the median client, and at most as much as all others
    together, by declared rows. None: by its rows alone.
    `max_epochs`: limit of passes over a client's own samples per training, whatever the method asks for.
    `least_rows`: smallest batch of a client's own samples, and fewest samples of a label that is counted.
    `keep`: which of a client's used models is its model in the end.
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
        """Return the number of test rows per client."""
        return {client: len(split.test) for client, split in self.federation.splits.items()}

    def limit(self) -> Limit:
        """Return the limit of numbers per message."""
        return Limit(self.method.max_numbers(self.task) + Layout.of_buffers(self.module).size)
