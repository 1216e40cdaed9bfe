"""Sparsona: sparse, personalised federated learning over thin networks.

>>> import sparsona
>>> result = sparsona.run("fedavg", data="digits", clients=4, rounds=3, partition="iid")
>>> result.summary["rounds"]
3
"""

from sparsona.api import PersonalModel, Result, load, run
from sparsona.data.dataset import Dataset
from sparsona.layout import Layout
from sparsona.message import Blocks, Levels, Message, Positions, Sparse, Ternary, Vector
from sparsona.method import Arrival, Fit, Method, Phase, Predictor, ServerContext, Task
from sparsona.training.objective import Objective, classification, multilabel, regression
from sparsona.version import __version__

__all__ = [
    "Arrival",
    "Blocks",
    "Dataset",
    "Fit",
    "Layout",
    "Levels",
    "Message",
    "Method",
    "Objective",
    "PersonalModel",
    "Phase",
    "Positions",
    "Predictor",
    "Result",
    "ServerContext",
    "Sparse",
    "Task",
    "Ternary",
    "Vector",
    "__version__",
    "classification",
    "load",
    "multilabel",
    "regression",
    "run",
]  # fmt: skip
