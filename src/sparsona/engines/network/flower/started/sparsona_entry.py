"""Flower's commands by the names under which it installs them: these stay when its modules are moved."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any


def command(name: str) -> Callable[..., Any]:
    """The function behind a command of Flower, such as ``flower-superlink``."""
    (found,) = entry_points(group="console_scripts", name=name)
    loaded: Callable[..., Any] = found.load()
    return loaded
