"""The methods: one file each, the file's name being the method's name on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparsona.registry import Registry

if TYPE_CHECKING:
    from sparsona.method import Method

METHODS: Registry[type[Method[Any, Any]]] = Registry("method", __name__)
