"""The engines, which run the clients' turns. All share the server's loop in :mod:`sparsona.federation.rounds`."""

from collections.abc import Callable

from sparsona.federation.engine import Engine
from sparsona.federation.resources import Resources
from sparsona.federation.setup import Setup
from sparsona.registry import Registry

ENGINES: Registry[Callable[[Setup, Resources], Engine]] = Registry("engine", __name__)
"""An engine is made from the set-up and its resources."""

__all__ = ["ENGINES", "Engine"]
