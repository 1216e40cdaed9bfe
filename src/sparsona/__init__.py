"""Sparsona: sparse, personalised federated learning over thin networks.

>>> import sparsona
>>> result = sparsona.run("fedavg", data="digits", clients=4, rounds=3, partition="iid")
>>> result.summary["rounds"]
3
"""

from sparsona.api import PersonalModel, Result, run
from sparsona.dataset import Dataset
from sparsona.message import Blocks, Levels, Message, Positions, Sparse, Ternary, Vector
from sparsona.method import Arrival, Exchange, Fit, Method, Predictor, Task, Turn
from sparsona.objective import Objective, classification, multilabel, regression
from sparsona.vector import Layout
from sparsona.version import __version__

__all__ = [
    "Arrival", "Blocks", "Dataset", "Exchange", "Fit", "Layout", "Levels", "Message", "Method", "Objective",
    "PersonalModel", "Positions", "Predictor", "Result", "Sparse", "Task", "Ternary", "Turn", "Vector",
    "__version__", "classification", "multilabel", "regression", "run",
]  # fmt: skip
