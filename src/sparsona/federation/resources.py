"""The resources of a run: they change its duration and none of its numbers."""

from dataclasses import dataclass

from sparsona.options import option


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster on which workers run."""

    address: str = option("", "HOST:PORT of the Ray cluster, or auto (not given: RAY_ADDRESS, or start one here)")
    gpus_per_worker: float = option(0.0, "share of a GPU per Ray worker (0.25: four workers share one)", ge=0)


@dataclass(frozen=True)
class Resources:
    """The resources of an engine: number of workers (0: one per core) and, for Ray, the cluster."""

    workers: int = 0
    cluster: Cluster = Cluster()
