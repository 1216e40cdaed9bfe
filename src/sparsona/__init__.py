"""Sparsona: sparse, personalised federated learning over thin networks.

>>> import sparsona
>>> result = sparsona.run("fedavg", data="digits", clients=4, rounds=3, partition="iid")
>>> result.summary["rounds"]
3

The names below are imported on first use, so that commands without torch start fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sparsona.version import __version__

if TYPE_CHECKING:
    from sparsona.api import adapt, run
    from sparsona.data.dataset import Dataset
    from sparsona.export.predict import PersonalModel
    from sparsona.layout import Layout
    from sparsona.message import Blocks, Levels, Message, Positions, Sparse, Ternary, Vector
    from sparsona.method import Arrival, Fit, Method, Phase, Predictor, ServerContext, Task
    from sparsona.options import option
    from sparsona.result import Result, load
    from sparsona.studies.calls import choose, compare, sweep, tune
    from sparsona.studies.study import Study, to_latex
    from sparsona.training.objective import Objective, classification, multilabel, regression

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
    "Study",
    "Task",
    "Ternary",
    "Vector",
    "__version__",
    "adapt",
    "choose",
    "classification",
    "compare",
    "load",
    "multilabel",
    "option",
    "regression",
    "run",
    "sweep",
    "to_latex",
    "tune",
]  # fmt: skip

_FROM = {
    "sparsona.api": ("adapt", "run"),
    "sparsona.result": ("Result", "load"),
    "sparsona.export.predict": ("PersonalModel",),
    "sparsona.data.dataset": ("Dataset",),
    "sparsona.layout": ("Layout",),
    "sparsona.message": ("Blocks", "Levels", "Message", "Positions", "Sparse", "Ternary", "Vector"),
    "sparsona.method": ("Arrival", "Fit", "Method", "Phase", "Predictor", "ServerContext", "Task"),
    "sparsona.options": ("option",),
    "sparsona.studies.calls": ("choose", "compare", "sweep", "tune"),
    "sparsona.studies.study": ("Study", "to_latex"),
    "sparsona.training.objective": ("Objective", "classification", "multilabel", "regression"),
}
_HOME = {name: module for module, names in _FROM.items() for name in names}

_ROOMS = ("data", "methods", "models", "partition", "testing")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            return getattr(importlib.import_module(_HOME[name]), name)
        if name in _ROOMS:
            return importlib.import_module(f"sparsona.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
