"""The methods: one file each, the file's name being the method's name on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparsona.registry import Registry

if TYPE_CHECKING:
    from sparsona.method import Method

METHODS: Registry[type[Method[Any, Any]]] = Registry("method", __name__)

# Rows of "Personalized Heterogeneous Federated Learning with Gradient Similarity": FedAvg (Async) and FedAvg (Sync). In
# the latter stragglers take part when they are not delayed, which is a matter of the schedule (straggling=absent).
METHODS.add_preset("fedavg-stale", "fedavg", {"late": "average"}, "FedAvg that averages late models as they come.")
METHODS.add_preset("fedavg-drop", "fedavg", {"late": "drop"}, "FedAvg that throws late models away.")
