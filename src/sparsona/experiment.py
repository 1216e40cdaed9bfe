"""One experiment as data: TOML in, a checked object, and the same TOML out, complete."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sparsona.data import absolute
from sparsona.data.schema.columns import Columns
from sparsona.errors import InputError
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.resources import Cluster
from sparsona.federation.schedule import Sampled
from sparsona.files import check_regular
from sparsona.method import Method
from sparsona.methods import METHODS
from sparsona.registry import suggest
from sparsona.training.config import TrainConfig
from sparsona.wire import PackingName

LONGEST = 2**20
"""Bytes. What is longer is no experiment file."""

_PART = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
DEEP = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART}){{50}}")
"""A key of fifty parts and more. Python's reader takes memory by the square of their number."""

FREE = (
    "engine", "workers", "device", "rounds", "server_memory_mb", "cluster.address", "cluster.gpus_per_worker",
)  # fmt: skip
"""What may change when a run is resumed: where the work is done, and that it goes on for longer."""


@dataclasses.dataclass(frozen=True)
class Split:
    """How each client's samples are divided.

    `use`: the publisher's test part dealt out by the clients' training distributions (`official`), only the training
    part (`train`) or both together (`pooled`), divided within each client. `test` and `validation` are shares. `by`:
    random, time:COLUMN (the last rows are tested; time:COLUMN:GAP leaves out rows that near to the cut), group:COLUMN
    (whole groups are tested). `repeat` counts other divisions at random. A client with fewer than `fewest` test rows
    has no score.
    """

    use: Literal["official", "train", "pooled"] = "official"
    test: Annotated[float, Field(gt=0, lt=1)] = 0.2
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    by: str = "random"
    repeat: Annotated[int, Field(ge=0)] = 0
    fewest: Annotated[int, Field(ge=1)] = 5


class Experiment(BaseModel):
    """All that decides a run. Two equal experiments give the same digest.

    >>> Experiment(method="fedprox", options={"mu": 0.5}).training.lr
    0.1
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    data: str = "digits"
    model: str = "auto"
    clients: Annotated[int, Field(ge=0)] = 10
    partition: str = "dirichlet-classes:0.3"
    rounds: Annotated[int, Field(ge=1)] = 20
    seed: Annotated[int, Field(ge=0)] = 0
    new_clients: Annotated[float, Field(ge=0, lt=1)] = 0.0
    engine: str = "auto"
    workers: Annotated[int, Field(ge=0)] = 0
    device: str = "cpu"
    trainer: Literal["plain", "batched"] = "plain"
    packing: PackingName = "tight"
    max_update_norm: Annotated[float | None, Field(gt=0)] = None
    server_memory_mb: Annotated[int, Field(gt=0)] = 512
    options: dict[str, Any] = {}
    training: TrainConfig = TrainConfig()
    schedule: Sampled = Sampled()
    columns: Columns = Columns()
    split: Split = Split()
    evaluation: Evaluation = Evaluation()
    cluster: Cluster = Cluster()

    def same_work(self, other: Experiment) -> str | None:
        """The first setting in which the two experiments differ, None where one can continue the other."""
        mine, theirs = (flatten(e.model_dump(mode="json")) for e in (self, other))
        for key in sorted(mine | theirs):
            if key not in FREE and mine.get(key) != theirs.get(key):
                return key
        return None


SECTIONS: dict[str, type] = {
    "training": TrainConfig,
    "schedule": Sampled,
    "columns": Columns,
    "split": Split,
    "evaluation": Evaluation,
    "cluster": Cluster,
}


def build(settings: Mapping[str, Any], origin: str = "the experiment") -> tuple[Experiment, Method[Any, Any]]:
    """Check settings and return them complete, with the method that they describe."""
    _known(settings, origin)
    if "method" not in settings:
        raise InputError(f"{origin} does not name a method: choose one of {', '.join(METHODS.names())}")
    method = make_method(settings["method"], settings.get("options", {}))
    options = {k: v for k, v in dataclasses.asdict(method).items() if v is not None}
    try:
        return Experiment(**{**settings, "options": options}), method
    except ValidationError as error:
        raise InputError(f"{origin}: {explain(error)}") from None


def _known(settings: Mapping[str, Any], origin: str) -> None:
    for key, value in settings.items():
        if key not in Experiment.model_fields:
            raise InputError(f"{origin}: unknown setting {key!r}{suggest(key, Experiment.model_fields)}")
        if key in SECTIONS and isinstance(value, Mapping):
            names = [f.name for f in dataclasses.fields(SECTIONS[key])]
            for inner in value:
                if inner not in names:
                    raise InputError(f"{origin}: unknown setting {key}.{inner}{suggest(inner, names)}")


def make_method(name: str, options: Mapping[str, Any]) -> Method[Any, Any]:
    """The method called `name` with its hyper-parameters, checked.

    >>> make_method("fedprox", {"mu": 0.5}).mu
    0.5
    """
    kind = METHODS.get(name)
    names = option_names(kind)
    for key in options:
        if key not in names:
            hint = suggest(key, names) if names else "; it has none"
            raise InputError(f"method {name!r} has no option {key!r}{hint}")
    try:
        method: Method[Any, Any] = TypeAdapter(kind).validate_python(dict(options))
    except ValidationError as error:
        raise InputError(f"method {name!r}: {explain(error)}") from None
    return method


def option_names(kind: type[Method[Any, Any]]) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)]


def explain(error: ValidationError) -> str:
    """The first problem of a validation, in one line."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function-"))
    return f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']!r}"


def read(path: Path) -> dict[str, Any]:
    """The settings of an experiment file. A relative path to data starts at the file's folder."""
    try:
        check_regular(path)
        if path.stat().st_size > LONGEST:
            raise InputError(f"{path} is too long for an experiment file: it may have {LONGEST} bytes")
        text = path.read_text(encoding="utf-8")
        if DEEP.search(text):
            raise RecursionError
        settings = tomllib.loads(text)
        json.dumps(settings, default=str)
    except RecursionError:
        raise InputError(f"{path} is nested too deeply for an experiment file: write tables of one level") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    _known(settings, str(path))
    if isinstance(settings.get("data"), str):
        settings["data"] = absolute(settings["data"], path.parent)
    return settings


def assign(settings: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply ``key=value`` pairs: a method's option, a key of the training config, or ``section.key``.

    >>> assign({"method": "fedprox"}, ["mu=0.5", "lr=0.05", "schedule.dropout=0.1"])["training"]
    {'lr': 0.05}
    """
    out = json.loads(json.dumps(settings))
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"--set takes key=value, not {text!r}")
        section, _, name = key.rpartition(".")
        if not section:
            section = _section(str(out.get("method", "")), name)
        target = out.setdefault(section, {}) if section else out
        target[name] = _value(value.strip())
    return dict(out)


def _section(method: str, name: str) -> str:
    if method and name in option_names(METHODS.get(method)):
        return "options"
    if name in {f.name for f in dataclasses.fields(TrainConfig)}:
        return "training"
    if name in {f.name for f in dataclasses.fields(Columns)}:
        return "columns"
    if name in Experiment.model_fields:
        return ""
    options = option_names(METHODS.get(method)) if method else []
    known = [*options, *(f.name for f in dataclasses.fields(TrainConfig)), *Experiment.model_fields]
    raise InputError(f"--set: nothing is called {name!r}{suggest(name, known)}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def to_toml(experiment: Experiment) -> str:
    """The complete experiment as TOML; reading it gives an equal experiment."""
    tree = experiment.model_dump(mode="json", exclude_none=True)
    top = [f"{key} = {_literal(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            top += ["", f"[{key}]", *(f"{_key(name)} = {_literal(inner)}" for name, inner in value.items())]
    return "\n".join(top) + "\n"


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out.update(flatten(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out
