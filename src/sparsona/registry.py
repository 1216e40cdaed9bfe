"""Names on the command line and the objects behind them: one file an idea, the file's name is the name."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, get_type_hints

from sparsona.errors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """The things of one kind, found by name.

    Ours live in one package, one file each, and call :meth:`add`; plug-ins come through the entry-point group
    of the same name as the package (``sparsona.methods``, ``sparsona.models``, ...).
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._found: dict[str, T] = {}
        self._complete = False

    def add(self, item: T) -> T:
        """Register `item` under its file's name, ``fedavg_ft.py`` being ``fedavg-ft``. Usable as a decorator."""
        module = getattr(item, "__module__", "") or ""
        self._found[module.rpartition(".")[2].replace("_", "-")] = item
        return item

    def names(self) -> list[str]:
        self._load()
        return sorted(self._found)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._load()
        return iter(sorted(self._found.items(), key=lambda pair: pair[0]))

    def get(self, name: str) -> T:
        self._load()
        try:
            return self._found[name]
        except KeyError:
            raise InputError(f"unknown {self.kind} {name!r}{suggest(name, self._found)}") from None

    def _load(self) -> None:
        if self._complete:
            return
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{self.package}.{module.name}")
        for point in entry_points(group=self.package):
            try:
                self._found.setdefault(point.name, point.load())
            except Exception as error:  # a plug-in may raise anything
                raise InputError(
                    f"the plug-in {self.kind} {point.name!r} ({point.value}) does not load: {error}"
                ) from error
        self._complete = True


def suggest(name: str, known: Any) -> str:
    """The tail of an error line: the nearest known name, or all of them."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; choose one of {', '.join(sorted(known))}"


def split_spec(spec: str) -> tuple[str, list[str]]:
    """``"classes:6:own"`` is the name ``classes`` with the arguments ``["6", "own"]``.

    >>> split_spec("dirichlet-classes:0.3")
    ('dirichlet-classes', ['0.3'])
    """
    name, _, rest = spec.partition(":")
    return name, rest.split(":") if rest else []


def bind(kind: str, spec: str, function: Callable[..., Any], skip: int) -> dict[str, Any]:
    """The keyword arguments that the part of `spec` behind its name gives to `function`.

    The first `skip` parameters are the caller's. Each argument is converted to the type its parameter declares; the
    last parameter takes all that is left, so that a path may hold colons.

    >>> def mlp(shape: tuple[int, ...], hidden: int = 50, rate: float = 0.5): ...
    >>> bind("model", "mlp:200", mlp, skip=1)
    {'hidden': 200}
    """
    name, given = split_spec(spec)
    hints = get_type_hints(function)
    wanted = list(inspect.signature(function).parameters.values())[skip:]
    if wanted and len(given) > len(wanted):
        given = [*given[: len(wanted) - 1], ":".join(given[len(wanted) - 1 :])]
    if len(given) > len(wanted):
        raise InputError(f"{kind} {name!r} takes no argument, but {spec!r} gives one")
    missing = [p.name for p in wanted[len(given) :] if p.default is inspect.Parameter.empty]
    if missing:
        raise InputError(f"{kind} {name!r} needs an argument: write {name}:{':'.join(missing).upper()}")
    bound = {}
    for parameter, text in zip(wanted, given, strict=False):
        kind_of = hints.get(parameter.name, str)
        try:
            bound[parameter.name] = kind_of(text)
        except ValueError:
            message = f"{kind} {spec!r}: {parameter.name} must be of type {kind_of.__name__}, not {text!r}"
            raise InputError(message) from None
    return bound
