"""The partitions. A partition divides the samples of a data set among clients."""

from collections.abc import Callable, Mapping

from sparsona.data.dataset import Indices
from sparsona.registry import Registry

PARTITIONS: Registry[Callable[..., Mapping[str, Indices]]] = Registry("partition", __name__)
