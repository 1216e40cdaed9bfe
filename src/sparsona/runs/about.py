"""about.json: what a reader of a run must know besides its records, written when the run begins."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sparsona.data.dataset import Federation
from sparsona.errors import RunError
from sparsona.files import write_atomically
from sparsona.partition._split import class_counts
from sparsona.training.objective import Objective
from sparsona.version import __version__

FILE = "about.json"


@dataclass(frozen=True)
class ClientData:
    """How many samples a client has in each part, and how many of each class it trains on."""

    train: int
    validation: int
    test: int
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class About:
    """The metric, the model's size, the clients' data, and where the run began."""

    metric: str
    higher_is_better: bool
    weights: int
    clients: Mapping[str, ClientData] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def describe(federation: Federation, objective: Objective, weights: int) -> About:
    """What about.json will say of this federation."""
    data = federation.data
    counts = class_counts(federation) if data.classes else {}
    clients = {
        name: ClientData(
            len(split.train),
            len(split.validation),
            len(split.test),
            tuple(int(count) for count in counts[name]) if counts else (),
        )
        for name, split in federation.splits.items()
    }
    names = data.class_names or tuple(str(label) for label in range(data.classes))
    return About(
        objective.metric_name, objective.higher_is_better, weights, clients, tuple(map(str, names)), environment()
    )


def environment() -> dict[str, str]:
    """Versions and the machine; nothing that names a person, a host or a path.

    `instructions` is the instruction set that torch uses: results may differ in the last bits on another one.
    """
    packages = ("torch", "numpy", "scipy", "scikit-learn", "numba")
    return {
        "sparsona": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count() or 1),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def write_about(folder: Path, about: About) -> None:
    """Write about.json."""
    write_atomically(folder / FILE, json.dumps(asdict(about), indent=1, allow_nan=False) + "\n")


def read_about(folder: Path) -> About:
    """Read about.json."""
    file = folder / FILE
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        clients = {
            name: ClientData(**{**one, "classes": tuple(one["classes"])}) for name, one in raw["clients"].items()
        }
        return About(**{**raw, "clients": clients, "class_names": tuple(raw["class_names"])})
    except FileNotFoundError:
        raise RunError(f"{file} is missing: continue the run with --resume to have it written") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{file} is damaged ({error}): continue the run with --resume to have it written again"
        ) from None
