"""What clients remember between their turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparsona.method import ClientId, Method, Task
from sparsona.state import digest


class ClientStore:
    """The clients' states. One that was never written is what the method says a client starts with."""

    def __init__(self, method: Method[Any, Any], task: Task) -> None:
        self._method = method
        self._task = task
        self._states: dict[ClientId, Any] = {}
        self.changed: set[ClientId] = set()

    def get(self, client: ClientId) -> Any:
        if client not in self._states:
            return self._method.start_client(self._task, client)
        return self._states[client]

    def put(self, client: ClientId, state: Any) -> None:
        if state is not None:
            self._states[client] = state
            self.changed.add(client)

    def restore(self, client: ClientId, state: Any) -> None:
        """Put back what a checkpoint held: it is not a change."""
        self._states[client] = state

    def digests(self, clients: Iterable[ClientId]) -> dict[ClientId, str]:
        return {client: digest(self.get(client)) for client in sorted(clients)}
