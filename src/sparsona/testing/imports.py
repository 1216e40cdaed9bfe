"""What a method's modules may import."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from sparsona.errors import ContractError
from sparsona.method import Method

FORBIDDEN = (
    "sparsona.engines",
    "sparsona.wire",
    "sparsona.federation",
    "sparsona.runs",
    "sparsona.api",
    "sparsona.cli",
)


def check_imports(method: Method[Any, Any]) -> None:
    """A method knows neither engine nor wire; neither do the modules beside it that it imports, nor theirs."""
    first = type(method).__module__
    own = ("sparsona.methods", "sparsona.ops") if first.startswith("sparsona.") else (first.partition(".")[0],)
    seen, waiting = {first}, [first]
    while waiting:
        module = waiting.pop()
        for name in _imported(sys.modules[module]):
            if _within(name, FORBIDDEN):
                raise ContractError(f"{module} imports {name}: a method knows neither engine nor wire")
            if _within(name, own) and name in sys.modules and name not in seen:
                seen.add(name)
                waiting.append(name)


def _imported(module: ModuleType) -> Iterator[str]:
    """The modules that a module's source names in its imports."""
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            package = (module.__package__ or "").split(".")
            base = [*package[: len(package) + 1 - node.level], node.module or ""] if node.level else [node.module or ""]
            origin = ".".join(part for part in base if part)
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
