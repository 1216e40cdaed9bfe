"""Every knob of an experiment, turned by a dishonest organiser: what of an owner's rows is in the answers?

For each setting below, the server's own loop runs two rounds with one owner, who has agreed on other settings. All that
the owner answers is searched for its rows: in any three neighbouring numbers of 4 or 8 bytes, as in the file or scaled.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.engines.network.carrier import Parcel, Returned
from sparsona.engines.network.node import Node
from sparsona.engines.network.serverapp import NetworkRun
from sparsona.errors import SparsonaError
from sparsona.experiment import build, to_toml
from sparsona.methods import METHODS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

from flower_helpers import Direct

Numbers = npt.NDArray[np.float64]
TRAINING: dict[str, list[Any]] = {
    "epochs": [0, 20, 10**6],
    "steps": [1, 10**6],
    "batch": [1, 2, 19, 20, 149, 10**6],
    "optimizer": ["adam"],
    "lr": [1e-9, 1e9],
    "momentum": [0.999],
    "weight_decay": [1e6],
    "clip": [1e-9],
    "decay": [1e-9, 1e9],
    "repeats": [20, 10**6],
    "drop_last": [True],
    "order": ["stored"],
    "logit_prior": [True],
    "class_weights": ["balanced"],
}
OTHERS: dict[str, dict[str, list[Any]]] = {
    "": {
        "model": ["mlp:1", "mlp:400", "linear", "cnn"],
        "seed": [1, 2**31],
        "packing": ["plain", "tight"],
        "least_rows": [1, 2],
        "trainable": [["fc1"], ["fc2"]],
        "lora": ["1", "fc1:1"],
        "rounds": [1, 10**9],
        "device": ["cuda"],
        "data": ["folder:/", "/etc/passwd"],
        "base": ["/etc/passwd", "ab" * 32],
        "max_update_norm": [1e-9],
    },
    "split": {
        "test": [0.01, 0.99],
        "validation": [0.0, 0.99],
        "by": ["time:age", "group:name"],
        "repeat": [1, 50],
        "fewest": [1],
    },
    "evaluation": {
        "post": ["participants"],
        "ft": [True],
        "keep": ["best", "best-per-client"],
        "patience": [1],
        "metrics": [["accuracy", "auc", "recall"], ["log-loss"], ["confusion"]],
        "positive": ["yes"],
        "threshold": ["youden", "sensitivity=0.9"],
    },
    "personal": {"average": [0.0, 0.999], "pool": [["alone"], ["own", "alone"], ["trees"], ["linear"]]},
    "columns": {
        "scaling": ["own", "none"],
        "spelling": ["exact"],
        "features": [["age"], ["age", "pressure", "dose"]],
        "missing": [["50"], []],
        "target": [["age"], ["name"], ["ward"]],
        "task": ["regression", "multilabel"],
        "bounds": [["age=49:51"]],
        "client": ["name"],
    },
    "privacy": {"epsilon": [1e-9, 1e9]},
    "schedule": {"sample": [0.001, 1.0]},
}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((f"pfednet, sketch={sketch}", {"sketch": sketch}) for sketch in ("label", "shares", "mean", "cov", "kernel")),
    *((f"fedavg, merge={merge}", {"merge": merge}) for merge in ("median", "krum", "agree")),
    *((f"fedpse, density={density}", {"density": density}) for density in (1e-9, 1.0)),
    *((f"topk, density={density}", {"density": density}) for density in (1e-9, 1.0)),
]


def knobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each method, and each setting at its ends."""
    for method in METHODS.names():
        yield f"method={method}", {"method": method}
    for name, options in OPTIONS:
        yield name, {"method": name.partition(",")[0], "options": options}
    for group, keys in {"training": TRAINING, **OTHERS}.items():
        for key, values in keys.items():
            for value in values:
                yield f"{group}.{key}={value}".lstrip("."), {group: {key: value}} if group else {key: value}


class Recording(Direct):
    """Carries the messages of a server to one owner, and keeps what the owner answers."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        super().__init__(nodes)
        self.heard: list[tuple[str, bytes]] = []
        self.change = self._keep

    def _keep(self, parcel: Parcel, answer: Returned) -> Returned:
        self.heard.append((str(answer.head), answer.body))
        return answer


def answers(node: Node, client: str, experiment: Mapping[str, Any], home: Path) -> list[tuple[str, bytes]]:
    """What the owner answers to two rounds of an experiment, or to as much of it as it allows."""
    (home / "runs").mkdir(parents=True)
    carrier = Recording({client: node})
    # Whatever ends the run, the organiser has what it has heard until then.
    with contextlib.suppress(SparsonaError, OSError, KeyError), contextlib.redirect_stdout(io.StringIO()):
        NetworkRun(carrier, home, to_toml(build(dict(experiment))[0]), "run", 1.0).execute()
    return carrier.heard


@np.errstate(all="ignore")  # most of a frame's bytes are no numbers at all
def rows_in(data: bytes, scaled: Numbers, raw: Numbers) -> list[Numbers]:
    """The rows of a table that are in a frame, as numbers of 4 or 8 bytes at any offset."""
    found: list[Numbers] = []
    for kind, offset in itertools.chain((("<f4", k) for k in range(4)), (("<f8", k) for k in range(8))):
        whole = max(0, len(data) - offset) // np.dtype(kind).itemsize
        values = np.frombuffer(data, kind, whole, offset).astype(np.float64) if whole else np.zeros(0)
        for table in (raw, scaled):
            for at in np.flatnonzero(np.isin(_rounded(values), _rounded(table[:, 0]))):
                if at + 3 <= len(values):
                    found.extend(raw[(np.abs(values[at : at + 3] - table) < 1e-3).all(1)])
    return found


def _rounded(values: Numbers) -> Numbers:
    return np.asarray(np.round(np.where(np.abs(values) < 1e6, values, np.nan), 3), np.float64)
