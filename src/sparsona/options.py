"""The options of a method and the settings of an experiment, one line each: what `sparsona methods NAME` and
`sparsona settings` show, and the documentation's tables."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

NEEDED = "needed"
"""The default of an option that has none."""


@dataclass(frozen=True)
class Option:
    """One hyper-parameter or setting: its name, its type with the range or the choices, its default, its meaning."""

    name: str
    kind: str
    default: Any
    text: str


def options_of(kind: type) -> list[Option]:
    """The fields of a method, or of a section of an experiment. What each one means is the clause of the class's
    docstring that names it. For a field that many classes share it is the description that stands with its type.
    Options that belong together are one field, a dataclass, and are named with its name before theirs.

    >>> from sparsona.methods.fedprox import FedProx
    >>> options_of(FedProx)[0].kind, options_of(FedProx)[0].text
    ('float >= 0', 'the strength of the term')
    >>> [option.name for option in options_of(FedProx) if option.name.startswith("server.")][:2]
    ['server.optimizer', 'server.lr']
    """
    clauses = {"": _clauses(inspect.getdoc(kind) or "")}
    found = []
    for leaf in leaves(kind):
        group, _, name = leaf.name.rpartition(".")
        if group not in clauses:
            clauses[group] = _clauses(inspect.getdoc(type(getattr(kind, group))) or "")
        text = _meaning(name, clauses[group]) or _description(leaf.hint)
        found.append(Option(leaf.name, _kind(leaf.hint), leaf.default, text))
    return found


@dataclass(frozen=True)
class Leaf:
    """An option as it is declared: its name, with its group's before it, its annotated type and its default."""

    name: str
    hint: Any
    default: Any


def leaves(kind: type) -> list[Leaf]:
    """The fields of a class in the order of their declaration, groups unfolded."""
    hints, found = get_type_hints(kind, include_extras=True), []
    grouped = groups(kind)
    for field, default in _defaults(kind).items():
        if field in grouped:
            inner = get_type_hints(type(default), include_extras=True)
            found += [Leaf(f"{field}.{name}", inner[name], value) for name, value in grouped[field].items()]
        else:
            found.append(Leaf(field, hints[field], default))
    return found


def groups(kind: type) -> dict[str, dict[str, Any]]:
    """The groups of options of a method, each with its options' defaults.

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
    """The fields of a dataclass or a pydantic model, with their defaults; :data:`NEEDED` where there is none."""
    if dataclasses.is_dataclass(kind):
        found = {field.name: field.default for field in dataclasses.fields(kind)}
        return {name: NEEDED if default is dataclasses.MISSING else default for name, default in found.items()}
    fields: dict[str, FieldInfo] = getattr(kind, "model_fields", {})
    return {name: NEEDED if field.is_required() else field.default for name, field in fields.items()}


def _clauses(doc: str) -> list[str]:
    return [re.sub(r"\s+", " ", clause).strip(" .") for clause in re.split(r"(?<=[.;])\s+", doc) if clause.strip()]


def _meaning(name: str, clauses: list[str]) -> str:
    found = next((clause.rstrip(";") for clause in clauses if f"`{name}`" in clause), "")
    return re.sub(rf"^`{re.escape(name)}`(?::| is| are) ", "", found)


def _description(hint: Any) -> str:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((extra.description for extra in extras if isinstance(extra, FieldInfo) and extra.description), "")


SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _kind(hint: Any) -> str:
    """A type as text: ``float >= 0, < 1``, ``tensor | model``, ``int >= 1 or none``."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([_kind(arguments[0]), *_bounds(arguments[1:])])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, UnionType):
        return " or ".join("none" if one is NoneType else _kind(one) for one in arguments)
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return f"{_kind(arguments[1])} by name"
    return str(getattr(hint, "__name__", hint))


def _bounds(extras: tuple[Any, ...]) -> list[str]:
    """The bounds that pydantic checks, as one text."""
    found = []
    for extra in extras:
        for rule in extra.metadata if isinstance(extra, FieldInfo) else ():
            found += [f"{sign} {getattr(rule, name)}" for name, sign in SIGNS.items() if hasattr(rule, name)]
    return [", ".join(found)] if found else []
