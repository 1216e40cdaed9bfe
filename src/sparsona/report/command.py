"""The command that runs an experiment again."""

import dataclasses
import json
from collections.abc import Mapping
from shlex import quote
from typing import Any

from sparsona.experiment import Experiment, flatten, is_own, make_method
from sparsona.registry import GIVEN

MACHINE = ("engine", "workers", "device")
"""Settings of the machine on which the work is done."""
FLAGS = ("data", "model", "clients", "partition", "rounds", "seed", "new_clients", "trainer", "packing")
SHORT = {
    "schedule.sample": "sample",
    "evaluation.every": "eval-every",
    "evaluation.metrics": "metric",
    "split.by": "split",
    "max_update_norm": "max-update-norm",
    **{f"columns.{name}": name for name in ("target", "task", "features", "drop", "categorical", "bounds", "client")},
    **{f"columns.{name}": name for name in ("scaling", "inputs", "spelling", "separator", "decimal", "encoding")},
}
"""Settings in sections that have their own options, and the names of these options."""


def run_command(settings: Mapping[str, Any], out: str | None = None) -> str:
    """Return ``sparsona run`` with every setting that is not the default, but without settings of the machine.

    >>> run_command({"method": "fedprox", "rounds": 30, "options": {"mu": 0.5}, "training": {"lr": 0.05}})
    'sparsona run fedprox --rounds 30 --set mu=0.5 --set training.lr=0.05'
    >>> run_command({"method": "fedavg", "data": "folder:wards", "columns": {"target": ["ill"], "drop": ["a", "b"]}})
    'sparsona run fedavg --data folder:wards --target ill --drop a,b'

    If the data were given in Python, it is a call in Python.

    >>> run_command({"method": "fedprox", "data": GIVEN, "rounds": 30, "options": {"mu": 0.5}}, "my-run")
    "sparsona.run('fedprox', data=your_data, rounds=30, set=('mu=0.5',), out='my-run')"
    """
    method, changed = str(settings["method"]), _changed(settings)
    if GIVEN in (changed.get("data"), changed.get("model")):
        return _python(method, changed, out)
    words = ["sparsona", "run", method]
    for key, value in changed.items():
        if key in FLAGS:
            words += [f"--{key.replace('_', '-')}", str(value)]
        elif key in SHORT and not _intricate(value):
            words += [f"--{SHORT[key]}", ",".join(value) if isinstance(value, list | tuple) else str(value)]
        else:
            words += ["--set", f"{key.removeprefix('options.')}={_text(value)}"]
    if out is not None:
        words += ["--out", out]
    return " ".join(quote(word) for word in words)


def _changed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not the default, by their paths, without the method and those of the machine."""
    method = str(settings["method"])
    defaults = Experiment(method=method).model_dump(mode="json")
    made = make_method(method, {})
    defaults["options"] = {k: v for k, v in dataclasses.asdict(made).items() if v is not None}
    defaults["personal"]["average"] = made.average
    usual, given = flatten(defaults), flatten(settings)
    owned = is_own(str(settings.get("data", ""))) and "lr" not in made.unused  # its default would be chosen anew
    return {
        key: value
        for key, value in given.items()
        if key not in ("method", *MACHINE)
        and (_listed(value) != _listed(usual.get(key)) or (key == "training.lr" and owned))
    }


OWN = "options.", "personal."
"""Beginnings of the settings that the baselines of a comparison do not share with its method."""


def compare_command(settings: Mapping[str, Any]) -> str:
    """Return ``sparsona compare`` of a run's method with the baselines, which keep their own options and models.

    >>> compare_command({"method": "fedprox", "rounds": 30, "options": {"mu": 0.5}, "training": {"lr": 0.05}})
    'sparsona compare fedprox:mu=0.5 --rounds 30 --set training.lr=0.05'
    """
    method = str(settings["method"])
    own = {key: value for key, value in _changed(settings).items() if key.startswith(OWN)}
    shared = {key: value for key, value in settings.items() if f"{key}." not in OWN}
    pool = {"pool": "+".join(own.pop("personal.pool"))} if "personal.pool" in own else {}
    told = ",".join(f"{key.removeprefix('options.')}={_text(value)}" for key, value in (pool | own).items())
    rest = run_command(shared).removeprefix(f"sparsona run {method}")
    return f"sparsona compare {quote(f'{method}:{told}' if told else method)}{rest}"


def _python(method: str, changed: Mapping[str, Any], out: str | None) -> str:
    """Return the call for data or a model that are given in Python."""
    parts = [repr(method)]
    parts += [f"{key}=your_{key}" for key in ("data", "model") if changed.get(key) == GIVEN]
    parts += [f"{key}={value!r}" for key, value in changed.items() if key in FLAGS and value != GIVEN]
    sets = [f"{key.removeprefix('options.')}={_text(value)}" for key, value in changed.items() if key not in FLAGS]
    parts += [f"set={tuple(sets)!r}"] if sets else []
    parts += [f"out={out!r}"] if out is not None else []
    return f"sparsona.run({', '.join(parts)})"


def _intricate(value: Any) -> bool:
    """True if names of columns hold commas, quotes or outer spaces, which an option would misread."""
    return isinstance(value, list | tuple) and any("," in name or '"' in name or name.strip() != name for name in value)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
