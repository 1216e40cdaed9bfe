"""Doubts: values that can be read and are probably wrong. None of them stops a run.

A kind is a function of :class:`Sites` that yields a :class:`Doubt` for each finding. Plug-ins add kinds through the
entry-point group ``sparsona.data.doubts``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparsona.data.doubts._sites import Doubt, Sites
from sparsona.registry import Registry

__all__ = ["DOUBTS", "Doubt", "Sites", "doubts_of", "listed"]

DOUBTS: Registry[Callable[[Sites], Iterable[Doubt]]] = Registry("doubt", __name__)
MOST = 12
"""Doubts that are shown one by one; about.json holds all."""


def doubts_of(sites: Sites) -> tuple[Doubt, ...]:
    """Return the findings of all kinds in these rows; none in samples without columns, such as images and text."""
    if sites.rows.block is not None or not sites.clients:
        return ()
    return tuple(doubt for _, find in DOUBTS for doubt in find(sites))


def listed(doubts: Iterable[Doubt | str]) -> list[str]:
    """One line per doubt, and a last line that counts the doubts beyond the first `MOST`."""
    lines = [doubt if isinstance(doubt, str) else doubt.line for doubt in doubts]
    more = [f"{len(lines) - MOST} more doubts; about.json of a run lists all"] if len(lines) > MOST else []
    return lines[:MOST] + more
