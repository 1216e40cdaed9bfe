"""The invariants of every method, partition and model; public, so that plug-ins can be checked, too.

>>> from sparsona.methods.fedavg import FedAvg
>>> check_method(FedAvg())
"""

from sparsona.testing.delivery import Event, Observed, Scripted, check_delivery, play
from sparsona.testing.methods import check_method
from sparsona.testing.pieces import check_model, check_partitioner
from sparsona.testing.tiny import tiny_setup

__all__ = [
    "Event",
    "Observed",
    "Scripted",
    "check_delivery",
    "check_method",
    "check_model",
    "check_partitioner",
    "play",
    "tiny_setup",
]
