"""A Ray cluster of three nodes on loopback, a core each, of which this process is a member."""

from __future__ import annotations

import logging
import time
from typing import Any

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
PATIENCE = 180
"""Seconds for what takes two or three where nobody else uses the machine."""
CONFIG = {
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000 * PATIENCE,
    "worker_register_timeout_seconds": PATIENCE,
    "worker_niceness": 0,
    "enable_worker_prestart": False,
    "prestart_worker_first_driver": False,
}
"""A node that is slow is not a dead one: that one was killed is seen by its closed port. Workers are not niced, since
Linux would lower the priority of all that was started from the same shell. None is started unasked."""


class Nodes:
    """Nodes are added and killed as the tests like; the head stays."""

    def __init__(self, count: int = 3) -> None:
        import ray
        from ray.cluster_utils import Cluster

        head = {**NODE, "include_dashboard": False, "_system_config": CONFIG}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._more: list[Any] = [self._cluster.add_node(wait=False, **NODE) for _ in range(count - 1)]
        self._cluster.wait_for_nodes(PATIENCE)
        ray.init(address=self.address, log_to_driver=False, logging_level=logging.WARNING)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> None:
        self._more.append(self._cluster.add_node(wait=False, **NODE))
        self._cluster.wait_for_nodes(PATIENCE)

    def kill_one(self) -> None:
        """Kill a node's processes, as a power cut would, and wait until the others have noticed."""
        import ray

        self._cluster.remove_node(self._more.pop(0), allow_graceful=False)
        until = time.monotonic() + PATIENCE
        while sum(node["Alive"] for node in ray.nodes()) > 1 + len(self._more) and time.monotonic() < until:
            time.sleep(0.1)

    def close(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()
