"""One experiment as data: TOML in, a checked object, and the same TOML out, complete."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation

from sparsona.data import PATHS, absolute
from sparsona.data.schema.columns import Columns, Names
from sparsona.errors import InputError, printable
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.resources import Cluster
from sparsona.federation.schedule import Sampled
from sparsona.files import read_outside, unsigned
from sparsona.method import Method
from sparsona.methods import METHODS
from sparsona.options import Option, groups, option, options_of
from sparsona.partition._split import Split
from sparsona.personal.layer import PersonalLayer
from sparsona.privacy import PrivacySettings
from sparsona.registry import GIVEN, split_spec, suggest
from sparsona.training.config import TrainConfig
from sparsona.wire import PackingName

LONGEST = 2**18
"""Limit of an experiment file in characters."""

_PART = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
DEEP = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART}){{8}}")
"""A key of nine parts or more. No setting has more than three, and tomllib's memory grows with their square."""

AUTO = "auto"
"""A learning rate that is chosen on validation rows before round 1."""

FREE = (
    "engine", "workers", "device", "rounds", "server_memory_mb", "cluster.address", "cluster.gpus_per_worker",
    "evaluation.patience", "report_to",
)  # fmt: skip
"""Settings that may change when a run is resumed: its resources and its length."""


class Experiment(BaseModel):
    """All settings that determine a run; equal experiments give the same digest.

    >>> Experiment(method="fedprox", options={"mu": 0.5}).training.lr
    0.1
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Annotated[str, Field(description="name of the method, as `sparsona methods` lists it")]
    data: str = option("digits", "name of `sparsona data list`, or your own: folder:, csv:, parquet:, npz:, images:")
    model: str = option("auto", "network (auto: the data set's own)")
    trainable: Names = option((), "trained layers: head, or names and patterns (not given: as the model says)")
    lora: str = option("", "low-rank adapters on frozen layers: rank=8, or rank=8,targets=query|value,alpha=16")
    base: str = option("", "the frozen weights: a .safetensors file, or the sha256 that they must have (filled in)")
    clients: int = option(10, "number of clients (0: all that the partition makes, as with your own data)", ge=0)
    partition: str = option(
        "dirichlet-classes:0.3", "how samples are split over clients (groups: by owner, as your own data)"
    )
    rounds: int = option(20, "number of rounds", ge=1)
    seed: int = option(0, "seed of all random numbers", ge=0)
    new_clients: float = option(0.0, "share of clients held out of training that join after the last round", ge=0, lt=1)
    engine: str = option("auto", "engine that runs the clients: inprocess, pool or ray (auto: pool where it is faster)")
    workers: int = option(0, "number of worker processes (0: one per core)", ge=0)
    device: str = option("cpu", "device: cpu or cuda")
    report_to: Names = option((), "programs to log the run to: tensorboard, mlflow, wandb, or those of plug-ins")
    trainer: Literal["auto", "plain", "fused"] = option(
        "auto", "plain torch, or compiled code for tiny networks (fused; auto: where it supports the model)"
    )
    packing: PackingName = option("tight", "encode for few bytes (tight) or little time (plain)")
    max_update_norm: float = option(
        0.0, "reject updates whose norm exceeds N times the median of the others (0: accept all)", ge=0
    )
    least_rows: int = option(
        1, "least number of a client's rows behind each batch, category and other value that it sends", ge=1
    )
    server_memory_mb: int = option(512, "memory for client state on the server in MB; the rest spills to disk", gt=0)
    options: dict[str, Any] = option({}, "options of the method: `sparsona methods NAME` (not given: its defaults)")
    training: TrainConfig = TrainConfig()
    schedule: Sampled = Sampled()
    columns: Columns = Columns()
    split: Split = Split()
    evaluation: Evaluation = Evaluation()
    personal: PersonalLayer = PersonalLayer()
    privacy: PrivacySettings = PrivacySettings()
    cluster: Cluster = Cluster()

    def same_work(self, other: Experiment, free: Collection[str] = ()) -> str | None:
        """Return the first setting in which two experiments differ; None if one can continue the other.

        Settings in `free` may differ, besides those that always may. With a privacy budget the rounds must not, because
        the noise was chosen for them.
        """
        mine, theirs = (flatten(e.model_dump(mode="json")) for e in (self, other))
        may = {*FREE, *free} - ({"rounds"} if self.privacy.is_on else set())
        for key in sorted(mine | theirs):
            if key not in may and mine.get(key) != theirs.get(key):
                return key
        return None


SECTIONS: dict[str, type] = {
    name: info.annotation
    for name, info in Experiment.model_fields.items()
    if isinstance(info.annotation, type) and dataclasses.is_dataclass(info.annotation)
}

SECTION_OF = {field.name: section for section, kind in SECTIONS.items() for field in dataclasses.fields(kind)}
"""The section of each key; keys are unique among sections."""


def is_own(data: str) -> bool:
    """True for an owner's data: files, or objects given in Python.

    >>> is_own("csv:patients.csv"), is_own("digits")
    (True, False)
    """
    return split_spec(data)[0] in (GIVEN, *PATHS)


def rounds_of(settings: Mapping[str, Any]) -> int:
    """Return the number of rounds in the settings, or the default.

    >>> rounds_of({"method": "fedavg"}), rounds_of({"rounds": 5})
    (20, 5)
    """
    return int(settings.get("rounds", Experiment.model_fields["rounds"].default))


def all_settings() -> list[Option]:
    """Return every key of an experiment file and of ``--set``, with its type, default and meaning.

    >>> [(s.name, s.kind, s.default) for s in all_settings() if s.name in ("rounds", "training.momentum")]
    [('rounds', 'int >= 1', 20), ('training.momentum', 'float >= 0, < 1', 0.0)]
    """
    top = [option for option in options_of(Experiment) if option.name not in SECTIONS]
    inner = ((section, option) for section, kind in SECTIONS.items() for option in options_of(kind))
    return [*top, *(dataclasses.replace(option, name=f"{section}.{option.name}") for section, option in inner)]


def build(
    settings: Mapping[str, Any], origin: str = "the experiment", given: Method[Any, Any] | None = None
) -> tuple[Experiment, Method[Any, Any]]:
    """Check and complete settings; return them with their method, or with the `given` method object."""
    _known(settings, origin)
    if "method" not in settings:
        raise InputError(f"{origin} does not name a method: choose one of {', '.join(METHODS.names())}")
    training = settings.get("training")
    if isinstance(training, Mapping) and training.get("lr") == AUTO:
        raise InputError(f"{origin}: training.lr=auto is chosen in a simulation: give the rate of its experiment.toml")
    name, options = settings["method"], settings.get("options", {})
    if not isinstance(name, str) or not isinstance(options, Mapping):
        raise InputError(f"{origin}: method is a name, and options is a table: write [options]")
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


def without_auto(settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Take a learning rate `auto` out of the settings; returns whether the rate is to be chosen.

    It is the default on owners' data, whose best rate is unknown. Published data sets keep the usual rate.

    >>> without_auto({"method": "fedavg", "training": {"lr": "auto", "epochs": 2}})
    ({'method': 'fedavg', 'training': {'epochs': 2}}, True)
    """
    training = settings.get("training", {})
    given = training.get("lr") if isinstance(training, Mapping) else 0.0
    if given == AUTO:
        return {**settings, "training": {key: value for key, value in training.items() if key != "lr"}}, True
    return settings, given is None and is_own(str(settings.get("data", "")))


def _known(settings: Mapping[str, Any], origin: str) -> None:
    for key, value in settings.items():
        if key not in Experiment.model_fields:
            raise InputError(
                f"{origin}: unknown setting {key!r}{suggest(key, [*Experiment.model_fields, *SECTION_OF])}"
            )
        if key in SECTIONS and isinstance(value, Mapping):
            names = [f.name for f in dataclasses.fields(SECTIONS[key])]
            for inner in value:
                if inner not in names:
                    raise InputError(f"{origin}: unknown setting {key}.{inner}{suggest(inner, names)}")


def make_method(name: str, options: Mapping[str, Any]) -> Method[Any, Any]:
    """Make the method called `name` with checked hyper-parameters.

    >>> make_method("fedprox", {"mu": 0.5}).mu
    0.5
    """
    return _made(METHODS.get(name), name, {**METHODS.preset(name), **options})


def _checked(method: Method[Any, Any], name: str) -> Method[Any, Any]:
    """Check the options of a given method object like those of a named method."""
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


def option_names(kind: type[Method[Any, Any]] | None) -> list[str]:
    """Return the names of a method's options; none without a method."""
    return [] if kind is None else [f.name for f in dataclasses.fields(kind)]


def explain(error: ValidationError) -> str:
    """Return the first problem of a validation in one line."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function-"))
    return f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']!r}"


def parsed(text: str, origin: str) -> dict[str, Any]:
    """Parse the text of an experiment; raises `InputError` if it is invalid, too long or nested too deeply."""
    if len(text) > LONGEST:
        raise InputError(f"{origin} is too long for an experiment file: it may have {LONGEST} characters")
    try:
        if DEEP.search(text):
            raise RecursionError
        settings = tomllib.loads(text)
        json.dumps(settings, default=str)
    except RecursionError:
        raise InputError(f"{origin} is nested too deeply for an experiment file: write tables of one level") from None
    except ValueError as error:  # not a TOML file, or a number of thousands of digits
        raise InputError(f"{origin} is not a TOML file: {printable(error, 200)}") from None
    return settings


def read(path: Path) -> dict[str, Any]:
    """Read an experiment file; a relative path to data starts at the file's folder."""
    try:
        text = unsigned(read_outside(path).decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    settings = parsed(text, str(path))
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
        kind = METHODS.get(str(out["method"])) if out.get("method") else None
        try:
            found = tomllib.loads(f"value = {value.strip()}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            found = value.strip()
        _put(out, _path(key, kind), found)
    return out


def placed(keywords: Mapping[str, Any], kind: type[Method[Any, Any]] | None) -> dict[str, Any]:
    """Put each keyword where it belongs: any key of an experiment file, or an option of the method, alone or dotted.

    A name that is both an option of the method and a key of the experiment is refused, unless it comes as a section.

    >>> placed({"lr": 0.05, "mu": 0.5, "rounds": 3, "server.lr": 1.0}, METHODS.get("fedprox"))
    {'training': {'lr': 0.05}, 'options': {'mu': 0.5, 'server': {'lr': 1.0}}, 'rounds': 3}
    """
    own = option_names(kind)
    out: dict[str, Any] = {}
    sections_first = sorted(keywords.items(), key=lambda item: item[0] not in (*SECTIONS, "options"))
    for key, given in sections_first:
        value = _plain(given, key)
        whole = key in SECTIONS and isinstance(value, Mapping)
        if key in own and not whole and (key in SECTION_OF or key in Experiment.model_fields):
            section = SECTION_OF.get(key, "")
            both = f"{section}.{key}" if section else f"the setting {key}"
            fix = f"options={{{key!r}: ...}} or {f'{section}={{{key!r}: ...}}' if section else f'set={key!r}'}"
            raise InputError(f"{key} may be the method's option or {both}: write {fix}")
        known = whole or "." in key or key in (*own, *SECTION_OF)
        path = _path(key, None if whole else kind) if known else [key]
        if len(path) == 1 or isinstance(out.get(path[0], {}), Mapping):  # the check of settings names other values
            _put(out, path, value)
    return out


def _path(key: str, kind: type[Method[Any, Any]] | None) -> list[str]:
    """Return the path of a key: an option below `options`, a setting in its section, a dotted key as it is."""
    path = key.split(".")
    if path[0] in option_names(kind):
        return ["options", *path]
    if len(path) > 1 or key in Experiment.model_fields:
        return path
    if key not in SECTION_OF:
        known = [*option_names(kind), *SECTION_OF, *Experiment.model_fields]
        raise InputError(f"--set: nothing is called {key!r}{suggest(key, known)}")
    return [SECTION_OF[key], key]


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a key below copied sections, because sections may be the caller's."""
    first, *rest = path
    if not rest:
        tree[first] = value
        return
    inner = tree.get(first, {})
    if not isinstance(inner, Mapping):
        raise InputError(f"{first!r} is a value, not a group of settings: {'.'.join(path)} cannot be set")
    tree[first] = inner = dict(inner)
    _put(inner, rest, value)


def _plain(value: Any, where: str) -> Any:
    """Return a setting in the form of a file: numpy numbers as numbers, a section's object as its fields."""
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


def to_toml(experiment: Experiment) -> str:
    """Return the complete experiment as TOML; reading it gives an equal experiment."""
    tree = experiment.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps({key: value for key, value in tree.items() if value != {}})


def merged(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with `more` of them; a section keeps its other settings.

    >>> merged({"rounds": 3, "training": {"lr": 0.1}}, {"rounds": 5, "training": {"batch": 8}})
    {'rounds': 5, 'training': {'lr': 0.1, 'batch': 8}}
    """
    inner = {key: {**settings.get(key, {}), **value} for key, value in more.items() if isinstance(value, Mapping)}
    return {**settings, **more, **inner}


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a tree of settings by their paths.

    >>> flatten({"rounds": 3, "training": {"lr": 0.1}})
    {'rounds': 3, 'training.lr': 0.1}
    """
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return out
