"""Server state per client: a mapping whose values may be spilled until they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True)
class Resting(Generic[V]):
    """A spilled value: the sha256 of its bytes, and the function that loads it."""

    name: str
    load: Callable[[], V]


class ByClient(Mapping[str, V]):
    """One value per client, immutable: ``|`` and :meth:`without` return another mapping.

    >>> masks = ByClient({"a": 1}) | {"b": 2}
    >>> masks["b"], sorted(masks.without(["a"])), "a" in masks
    (2, ['b'], True)

    A state with such a mapping may grow with its clients: the loop spills values that do not fit into memory, and they
    are loaded on access. Clients are iterated in the order of their names.
    """

    __slots__ = ("_held",)

    def __init__(self, held: Mapping[str, V | Resting[V]] = MappingProxyType({})) -> None:
        self._held: dict[str, V | Resting[V]] = dict(held.held if isinstance(held, ByClient) else held)

    def __getitem__(self, client: str) -> V:
        found = self._held[client]
        return found.load() if isinstance(found, Resting) else found

    def __contains__(self, client: object) -> bool:
        return client in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._held))

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"ByClient of {len(self)}"

    def __or__(self, more: Mapping[str, V]) -> ByClient[V]:
        """Return the mapping with these values, which replace older ones."""
        new = more.held if isinstance(more, ByClient) else more
        kept = {client: value for client, value in self._held.items() if client not in new}
        return ByClient({**kept, **new})

    def without(self, clients: Collection[str]) -> ByClient[V]:
        """Return the mapping without these clients."""
        return ByClient({client: value for client, value in self._held.items() if client not in clients})

    @property
    def held(self) -> Mapping[str, V | Resting[V]]:
        """Return the values, in memory or spilled, with the latest ones at the end."""
        return MappingProxyType(self._held)
