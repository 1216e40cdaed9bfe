"""The methods: one file each, the file's name being the method's name on the command line."""

from typing import Any

from sparsona.method import Method
from sparsona.registry import Registry

METHODS: Registry[type[Method[Any, Any]]] = Registry("method", __name__)
