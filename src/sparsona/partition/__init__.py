"""The partitions: one file each. A partition deals the samples of a data set out to clients."""

from collections.abc import Callable, Mapping

from sparsona.data.dataset import Indices
from sparsona.registry import Registry

PARTITIONS: Registry[Callable[..., Mapping[str, Indices]]] = Registry("partition", __name__)
