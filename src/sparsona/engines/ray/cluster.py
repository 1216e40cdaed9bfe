"""The cluster: join it, and count the workers for which it has room."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

from sparsona.errors import InputError, one_line
from sparsona.federation.resources import Cluster, Resources

STORE_BYTES = 512 * 2**20
"""Memory for objects beside the data, in bytes, in a cluster that is started here."""


def need_ray() -> Any:
    """Return the package; raise `InputError` that says how to install it."""
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'sparsona[ray]'") from None
    return ray


class Membership:
    """This process as a member of a cluster, until it leaves. A process that was a member before stays one."""

    def __init__(self, resources: Resources, data_bytes: int = 0) -> None:
        self._joined = not need_ray().is_initialized()
        if self._joined:
            _join(resources, data_bytes)

    def leave(self) -> None:
        """Leave the cluster, if this membership has joined it."""
        if self._joined:
            need_ray().shutdown()
            self._joined = False


def _join(resources: Resources, data_bytes: int) -> None:
    ray = need_ray()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    address = resources.cluster.address or os.environ.get("RAY_ADDRESS", "")
    if not address:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        workers = resources.workers or None
        ray.init(num_cpus=workers, include_dashboard=False, object_store_memory=STORE_BYTES + 2 * data_bytes, **quiet)
        return
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        problem = one_line(error)[:200]
        raise InputError(f"there is no Ray cluster at {address!r} ({problem}): check --ray-address") from None


def room(resources: Resources) -> int:
    """Return the largest number of workers: one per core, or as many as share the GPUs; 0 if there is no room."""
    return room_in(need_ray().cluster_resources(), resources)


def room_in(total: dict[str, float], resources: Resources) -> int:
    """
    >>> room_in({"CPU": 8.0}, Resources()), room_in({"CPU": 8.0}, Resources(workers=3))
    (8, 3)
    >>> room_in({"CPU": 8.0, "GPU": 1.0}, Resources(cluster=Cluster(gpus_per_worker=0.25)))
    4
    """
    most = math.floor(total.get("CPU", 0.0))
    gpus = resources.cluster.gpus_per_worker
    if gpus:
        most = min(most, math.floor(total.get("GPU", 0.0) / gpus + 1e-9))
    return min(most, resources.workers or most)


def without_room(cluster: Cluster) -> str:
    """Return the error text for a cluster that has no room for a worker."""
    wanted = f" and {cluster.gpus_per_worker:g} GPU" if cluster.gpus_per_worker else ""
    return f"the Ray cluster has no node with a core{wanted} for a worker: add nodes, or choose --engine pool"
