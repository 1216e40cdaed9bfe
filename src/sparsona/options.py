"""Options of methods and settings of experiments: how a class declares them, and how a program lists them.

`sparsona methods NAME`, `sparsona settings`, the help of every command that runs an experiment and the tables of the
documentation are made from these declarations.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import Field
from pydantic.fields import FieldInfo

T = TypeVar("T")

NEEDED = "needed"
"""Marks an option without a default."""


def option(default: T, description: str, **rules: float) -> T:
    """Declare a field of a dataclass or pydantic model with its default, its meaning and its range.

    `rules` are those of :func:`pydantic.Field`, such as ``ge``, ``gt``, ``le``, ``lt`` and ``min_length``.

    >>> @dataclass(frozen=True)
    ... class Step:
    ...     rate: float = option(0.1, "learning rate", gt=0)
    >>> Step().rate, options_of(Step)
    (0.1, [Option(name='rate', kind='float > 0', text='learning rate', default=0.1)])
    """
    # pydantic passes the metadata of a dataclass field on to Field, so a plain dataclass needs no FieldInfo default.
    return dataclasses.field(default=default, metadata={"description": description, **rules})


@dataclass(frozen=True)
class Option:
    """One option or setting: its name, its type with range or choices as a text, its meaning and its default."""

    name: str
    kind: str
    text: str
    default: Any
    hint: Any = dataclasses.field(repr=False)
    """The declared type, with description and range."""


def options_of(kind: type) -> list[Option]:
    """List the options of a method, or the settings of a section of an experiment.

    A field that is a dataclass is a group: its options are listed as ``group.name``. A field whose type has a
    description, such as `MergeRule`, needs none of its own.

    >>> from sparsona.methods.fedprox import FedProx
    >>> options_of(FedProx)[0].kind
    'float >= 0'
    >>> [option.name for option in options_of(FedProx) if option.name.startswith("server.")][:2]
    ['server.optimizer', 'server.lr']
    """
    declared, grouped, hints = list[tuple[str, Any, Any]](), groups(kind), _hints(kind)
    for field, default in _defaults(kind).items():
        if field in grouped:
            inner = _hints(type(default))
            declared += [(f"{field}.{name}", inner[name], value) for name, value in grouped[field].items()]
        else:
            declared.append((field, hints[field], default))
    found = []
    for name, hint, default in declared:
        extras = get_args(hint)[:0:-1] if get_origin(hint) is Annotated else ()
        texts = (extra.description for extra in extras if isinstance(extra, FieldInfo) and extra.description)
        found.append(Option(name, _kind(hint), next(texts, ""), default, hint))
    return found


def _hints(kind: type) -> dict[str, Any]:
    """Return the type of each field, with the declarations of :func:`option`."""
    if not dataclasses.is_dataclass(kind):
        fields: dict[str, FieldInfo] = getattr(kind, "model_fields", {})
        return {name: Annotated[info.annotation, info] for name, info in fields.items()}
    hints = get_type_hints(kind, include_extras=True)
    declared = {field.name: Field(**field.metadata) for field in dataclasses.fields(kind) if field.metadata}
    return hints | {name: Annotated[hints[name], info] for name, info in declared.items()}


def groups(kind: type) -> dict[str, dict[str, Any]]:
    """Return the groups of options of a method, each with its options' defaults.

    >>> from sparsona.methods.fedavg import FedAvg
    >>> groups(FedAvg)["server"]["momentum"]
    0.0
    """
    if not dataclasses.is_dataclass(kind):
        return {}
    return {
        name: dataclasses.asdict(default)
        for name, default in _defaults(kind).items()
        if dataclasses.is_dataclass(default) and not isinstance(default, type)
    }


def _defaults(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass or a pydantic model with their defaults, or :data:`NEEDED`."""
    if dataclasses.is_dataclass(kind):
        # The options that a method shares with its family, which are given by name only, come last.
        declared = sorted(dataclasses.fields(kind), key=lambda field: bool(field.kw_only))
        found = {field.name: field.default for field in declared}
        return {name: NEEDED if default is dataclasses.MISSING else default for name, default in found.items()}
    fields: dict[str, FieldInfo] = getattr(kind, "model_fields", {})
    return {name: NEEDED if field.is_required() else field.default for name, field in fields.items()}


SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _kind(hint: Any) -> str:
    """Return a type as text: ``float >= 0, < 1``, ``tensor | model``, ``int >= 1 or none``."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner, *extras = arguments
        if get_origin(inner) in (Union, UnionType):  # bounds hold for the members, not for none
            members = [one if one is NoneType else Annotated[one, *extras] for one in get_args(inner)]
            return " or ".join(map(_kind, members))
        return " ".join([_kind(inner), *_bounds(extras)])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, UnionType):
        return " or ".join(map(_kind, arguments))
    if hint is NoneType:
        return "none"
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return f"{_kind(arguments[1])} by name"
    return str(getattr(hint, "__name__", hint))


def _bounds(extras: Sequence[Any]) -> list[str]:
    found = []
    for extra in extras:
        for rule in extra.metadata if isinstance(extra, FieldInfo) else ():
            found += [f"{sign} {getattr(rule, name)}" for name, sign in SIGNS.items() if hasattr(rule, name)]
    return [", ".join(found)] if found else []
