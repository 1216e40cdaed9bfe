"""Flower's commands by their installed names, which stay the same when its modules move."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any


def command(name: str) -> Callable[..., Any]:
    """Return the function behind a command of Flower, such as ``flower-superlink``."""
    (found,) = entry_points(group="console_scripts", name=name)
    loaded: Callable[..., Any] = found.load()
    return loaded
