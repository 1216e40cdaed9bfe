"""Registries: names on the command line and the objects behind them, one file per idea."""

import ast
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.abc import SourceLoader
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, get_type_hints

from sparsona.errors import InputError

T = TypeVar("T")

GIVEN = "(given in Python)"
"""The name of a model or data that were given as objects."""


class Registry(Generic[T]):
    """The objects of one kind by name.

    Ours are in one package, declared by a `decorator`: :meth:`add` for a file of one object, :meth:`named` for several.
    Plug-ins come through the entry-point group with the name of the package (``sparsona.methods``, ``sparsona.models``,
    ...). Names are read from the sources; a file is imported when its object is needed.
    """

    def __init__(self, kind: str, package: str, decorator: str = "add") -> None:
        self.kind = kind
        self.package = package
        self._decorator = decorator
        self._found: dict[str, T] = {}
        self._files: dict[str, str] = {}
        self._described: dict[str, str] = {}
        self._plugins: dict[str, EntryPoint] = {}
        self._presets: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._listed = False

    def add(self, item: T) -> T:
        """Register `item` under its file's name, ``fedavg_ft.py`` being ``fedavg-ft``. Usable as a decorator."""
        self._found[_name(getattr(item, "__module__", "") or "")] = item
        return item

    def named(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an object as `name`, for variants of one idea that share a file."""

        def add(item: T) -> T:
            self._found[name] = item
            return item

        return add

    def add_preset(self, name: str, of: str, options: Mapping[str, Any], about: str) -> None:
        """Give the object called `of` a second name with other default `options`."""
        self._presets[name] = of, options
        self._described[name] = about

    def preset(self, name: str) -> Mapping[str, Any]:
        """Return the default options of a preset; none for other names."""
        return self._presets[name][1] if name in self._presets else {}

    def describe(self) -> dict[str, str]:
        """Return the names, each with the first line of its documentation, without importing the files."""
        if not self._listed:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                for name, about in _declared(module, (self._decorator, "named")):
                    self._files[name], self._described[name] = f"{self.package}.{module.name}", about
            for point in entry_points(group=self.package):
                if point.name not in self._described:
                    self._plugins[point.name] = point
                    self._described[point.name] = f"(plug-in {point.value})"
            self._listed = True
        return {name: self._described.get(name, "") for name in sorted({*self._described, *self._found})}

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return list(self.describe())

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return ((name, self.get(name)) for name in self.names())

    def check(self, name: str) -> None:
        """Refuse an unknown name."""
        known = self.names()
        if name not in known:
            raise InputError(f"unknown {self.kind} {name!r}{suggest(name, known)}")

    def get(self, name: str) -> T:
        """Return the object behind a name, importing its file if needed."""
        if name in self._presets:
            return self.get(self._presets[name][0])
        if name not in self._found:
            self.check(name)
            if name in self._plugins:
                self._found[name] = self._plugin(self._plugins[name])
            else:
                importlib.import_module(self._files[name])
        return self._found[name]

    def _plugin(self, point: EntryPoint) -> T:
        try:
            found: T = point.load()
        except Exception as error:  # a plug-in may raise anything
            raise InputError(
                f"the plug-in {self.kind} {point.name!r} ({point.value}) does not load: {error}"
            ) from error
        return found


def _name(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


def _declared(module: pkgutil.ModuleInfo, decorators: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each object that a file declares, and the first line of its docstring.

    An object is called like its file, unless the first argument of its decorator is a name.
    """
    if module.name.startswith("_"):
        return
    spec = module.module_finder.find_spec(module.name, None)
    source = spec.loader.get_source(spec.name) if spec is not None and isinstance(spec.loader, SourceLoader) else None
    for node in ast.parse(source or "").body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            given = decorator.args[:1] if isinstance(decorator, ast.Call) else []
            if ast.unparse(called).rpartition(".")[2] in decorators:
                name = ast.literal_eval(given[0]) if given else _name(module.name)
                yield name, (ast.get_docstring(node) or "").partition("\n")[0]


def suggest(name: str, known: Any) -> str:
    """Return the end of an error line: the nearest known name, or all names."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5 if len(name) < 4 else 0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; choose one of {', '.join(sorted(known))}"


def split_spec(spec: str) -> tuple[str, list[str]]:
    """Split a spec: ``"classes:6:own"`` is the name ``classes`` with the arguments ``["6", "own"]``.

    >>> split_spec("dirichlet-classes:0.3")
    ('dirichlet-classes', ['0.3'])
    """
    name, _, rest = spec.partition(":")
    return name, rest.split(":") if rest else []


def bind(kind: str, spec: str, function: Callable[..., Any], skip: int) -> dict[str, Any]:
    """Return the keyword arguments for `function` in the part of `spec` after its name.

    The first `skip` parameters are the caller's. Arguments are converted to the declared types; the last parameter
    takes the rest, so that a path may hold colons.

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
