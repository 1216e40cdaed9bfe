"""The options of a method, one line each: what `sparsona methods NAME` shows."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Option:
    """One hyper-parameter: its name, its type with the range or the choices, its default, and what it means."""

    name: str
    kind: str
    default: Any
    text: str


def options_of(method: type) -> list[Option]:
    """The options of a method. What each one means is the clause of the class's docstring that names it, or, for an
    option that many methods share, the description that stands with its type. Options that belong together are one
    field, a dataclass, and are named with its name before theirs.

    >>> from sparsona.methods.fedprox import FedProx
    >>> options_of(FedProx)[0].kind, options_of(FedProx)[0].text
    ('float >= 0', 'FedAvg with a proximal term of strength `mu` in the local loss')
    >>> [option.name for option in options_of(FedProx) if option.name.startswith("server.")][:2]
    ['server.optimizer', 'server.lr']
    """
    clauses = {"": _clauses(inspect.getdoc(method) or "")}
    found = []
    for leaf in leaves(method):
        group, _, name = leaf.name.rpartition(".")
        if group not in clauses:
            clauses[group] = _clauses(inspect.getdoc(type(getattr(method, group))) or "")
        text = _meaning(name, clauses[group]) or _description(leaf.hint)
        found.append(Option(leaf.name, _kind(leaf.hint), leaf.default, text))
    return found


@dataclass(frozen=True)
class Leaf:
    """An option as it is declared: its name, with its group's before it, its annotated type and its default."""

    name: str
    hint: Any
    default: Any


def leaves(method: type) -> list[Leaf]:
    """The options of a method in the order of their declaration, groups unfolded."""
    hints, found = get_type_hints(method, include_extras=True), []
    grouped = groups(method)
    for field in dataclasses.fields(method):
        if field.name in grouped:
            inner = get_type_hints(type(field.default), include_extras=True)
            found += [Leaf(f"{field.name}.{name}", inner[name], value) for name, value in grouped[field.name].items()]
        else:
            found.append(Leaf(field.name, hints[field.name], field.default))
    return found


def groups(method: type) -> dict[str, dict[str, Any]]:
    """The groups of options of a method, each with its options' defaults.

    >>> from sparsona.methods.fedavg import FedAvg
    >>> groups(FedAvg)["personal"]
    {'average': 0.0}
    """
    defaults = ((field.name, field.default) for field in dataclasses.fields(method))
    return {
        name: dataclasses.asdict(default)
        for name, default in defaults
        if dataclasses.is_dataclass(default) and not isinstance(default, type)
    }


def _clauses(doc: str) -> list[str]:
    return [re.sub(r"\s+", " ", clause).strip(" .") for clause in re.split(r"(?<=[.;])\s+", doc) if clause.strip()]


def _meaning(name: str, clauses: list[str]) -> str:
    return next((clause.rstrip(";") for clause in clauses if f"`{name}`" in clause), "")


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
    return str(getattr(hint, "__name__", hint))


def _bounds(extras: tuple[Any, ...]) -> list[str]:
    """The bounds that pydantic checks, as one text."""
    found = []
    for extra in extras:
        for rule in extra.metadata if isinstance(extra, FieldInfo) else ():
            found += [f"{sign} {getattr(rule, name)}" for name, sign in SIGNS.items() if hasattr(rule, name)]
    return [", ".join(found)] if found else []
