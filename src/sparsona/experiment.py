"""One experiment as data: TOML in, a checked object, and the same TOML out, complete."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)

from sparsona.data import absolute
from sparsona.data.schema.columns import Columns
from sparsona.errors import InputError
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.resources import Cluster
from sparsona.federation.schedule import Sampled
from sparsona.files import check_regular
from sparsona.method import Method
from sparsona.methods import METHODS
from sparsona.options import Option, groups, options_of
from sparsona.personal.layer import PersonalLayer
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
    """How each client's samples are divided into training, validation and test samples.

    `use` is official: the publisher's test part, dealt out as the training part is; train: only the training part,
    divided within each client; or pooled: both parts together, divided within each client. `test` is the share of a
    client's samples that is tested on; `validation` is the share of the rest that choices are made on.
    `by` is random; time:COLUMN, which tests the last rows (time:COLUMN:GAP leaves out rows so near to the cut); or
    group:COLUMN, which tests whole groups. `repeat` is the number of the random division. `fewest` is the least number
    of test rows with which a client has a score.
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

    method: Annotated[str, Field(description="the method, as `sparsona methods` lists it")]
    data: Annotated[str, Field(description="a data set of `sparsona data list`, or folder:, csv:, parquet:, npz:")] = (
        "digits"
    )
    model: Annotated[str, Field(description="the net; auto: the data set's own")] = "auto"
    clients: Annotated[int, Field(ge=0, description="how many clients; 0: as many as the partition makes")] = 10
    partition: Annotated[str, Field(description="how samples are dealt out; groups: the owners themselves")] = (
        "dirichlet-classes:0.3"
    )
    rounds: Annotated[int, Field(ge=1, description="how many rounds")] = 20
    seed: Annotated[int, Field(ge=0, description="the seed of all chance")] = 0
    new_clients: Annotated[float, Field(ge=0, lt=1, description="the share of clients that joins after training")] = 0.0
    engine: Annotated[str, Field(description="what runs the clients' turns; auto: the pool where it pays")] = "auto"
    workers: Annotated[int, Field(ge=0, description="worker processes; 0: one a core")] = 0
    device: Annotated[str, Field(description="cpu or cuda")] = "cpu"
    trainer: Annotated[
        Literal["auto", "plain", "fused"],
        Field(description="plain, or fused: tiny nets in compiled code; auto: fused where it takes the model"),
    ] = "auto"
    packing: Annotated[PackingName, Field(description="few bytes (tight) or little time (plain)")] = "tight"
    max_update_norm: Annotated[
        float | None, Field(gt=0, description="refuse a reply longer than so many times the others' median")
    ] = None
    least_rows: Annotated[
        int, Field(ge=1, description="the fewest rows of a client behind a batch, a category or another value it sends")
    ] = 1
    server_memory_mb: Annotated[
        int, Field(gt=0, description="of what the server has for its clients, more than so many MB are files")
    ] = 512
    options: Annotated[dict[str, Any], Field(description="the method's options: `sparsona methods NAME`")] = {}
    training: TrainConfig = TrainConfig()
    schedule: Sampled = Sampled()
    columns: Columns = Columns()
    split: Split = Split()
    evaluation: Evaluation = Evaluation()
    personal: PersonalLayer = PersonalLayer()
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
    "personal": PersonalLayer,
    "cluster": Cluster,
}


def all_settings() -> list[Option]:
    """Every key of an experiment file and of ``--set``, with its type, default and meaning.

    >>> [(s.name, s.kind, s.default) for s in all_settings() if s.name in ("rounds", "training.momentum")]
    [('rounds', 'int >= 1', 20), ('training.momentum', 'float >= 0, < 1', 0.0)]
    """
    top = [option for option in options_of(Experiment) if option.name not in SECTIONS]
    inner = ((section, option) for section, kind in SECTIONS.items() for option in options_of(kind))
    return [*top, *(dataclasses.replace(option, name=f"{section}.{option.name}") for section, option in inner)]


def build(
    settings: Mapping[str, Any], origin: str = "the experiment", given: Method[Any, Any] | None = None
) -> tuple[Experiment, Method[Any, Any]]:
    """Check settings and return them complete, with the method that they describe, or that is `given` as an object."""
    _known(settings, origin)
    if "method" not in settings:
        raise InputError(f"{origin} does not name a method: choose one of {', '.join(METHODS.names())}")
    name, options = settings["method"], settings.get("options", {})
    if given is not None and options:
        raise InputError(f"method {name!r} is given as an object, which has its options already: leave options out")
    method = make_method(name, options) if given is None else _checked(given, name)
    options = {k: v for k, v in dataclasses.asdict(method).items() if v is not None}
    try:
        experiment = Experiment(**{**settings, "options": options})
    except ValidationError as error:
        raise InputError(f"{origin}: {explain(error)}") from None
    if experiment.personal.average is None:
        personal = dataclasses.replace(experiment.personal, average=method.average)
        experiment = experiment.model_copy(update={"personal": personal})
    return experiment, method


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
    return _made(METHODS.get(name), name, {**METHODS.preset(name), **options})


def _checked(method: Method[Any, Any], name: str) -> Method[Any, Any]:
    """A method that was given as an object, its options checked like those of a method that is made by name."""
    kind = type(method)
    if not dataclasses.is_dataclass(kind):
        raise InputError(f"method {name!r} is no dataclass of its options: put @dataclass(frozen=True) before it")
    held = {field.name: getattr(method, field.name) for field in dataclasses.fields(kind) if field.init}
    for group in groups(kind):
        held[group] = dataclasses.asdict(held[group]) if dataclasses.is_dataclass(held[group]) else held[group]
    try:
        return _made(kind, name, held)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return method  # an option of a type that only its author can check


def _made(kind: type[Method[Any, Any]], name: str, options: Mapping[str, Any]) -> Method[Any, Any]:
    names, grouped = option_names(kind), groups(kind)
    for key in options:
        if key not in names:
            hint = suggest(key, names) if names else "; it has none"
            raise InputError(f"method {name!r} has no option {key!r}{hint}")
    complete = dict(options)
    for group, defaults in grouped.items():
        given = options.get(group, {})
        if not isinstance(given, Mapping):
            raise InputError(f"method {name!r}: {group} is a group of options: set {group}.{next(iter(defaults))}")
        for key in given:
            if key not in defaults:
                raise InputError(f"method {name!r} has no option '{group}.{key}'{suggest(key, defaults)}")
        complete[group] = {**defaults, **given}
    try:
        method: Method[Any, Any] = TypeAdapter(kind).validate_python(complete)
    except ValidationError as error:
        raise InputError(f"method {name!r}: {explain(error)}") from None
    return method


def option_names(kind: type[Method[Any, Any]]) -> list[str]:
    """The names of a method's options."""
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
    """Apply ``key=value`` pairs: a method's option, a key of the training config, ``group.option``, ``section.key``.

    >>> assign({"method": "fedprox"}, ["mu=0.5", "lr=0.05", "schedule.dropout=0.1"])["training"]
    {'lr': 0.05}
    """
    out = {key: _plain(value, key) for key, value in settings.items()}
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"--set takes key=value, not {text!r}")
        *path, name = key.split(".")
        method = str(out.get("method", ""))
        if not path:
            path = [section] if (section := _section(method, name)) else []
        elif method and path[0] in groups(METHODS.get(method)):
            path = ["options", *path]
        target = out
        for part in path:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise InputError(f"--set: {part!r} in {key!r} is a value, not a group of settings")
        target[name] = _value(value.strip())
    return out


def _plain(value: Any, where: str) -> Any:
    """A copy of a setting as a file holds it: numbers of numpy are numbers, a section's object is its fields."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, f"{where}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, where) for inner in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"setting {where} is of type {type(value).__name__}: give a text, a number, a list or a mapping")


def _section(method: str, name: str) -> str:
    if method and name in option_names(METHODS.get(method)):
        return "options"
    for section in ("training", "columns", "personal"):
        if name in {f.name for f in dataclasses.fields(SECTIONS[section])}:
            return section
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
    return tomli_w.dumps({key: value for key, value in tree.items() if value != {}})


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree of settings, by their path.

    >>> flatten({"rounds": 3, "training": {"lr": 0.1}})
    {'rounds': 3, 'training.lr': 0.1}
    """
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out.update(flatten(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out
