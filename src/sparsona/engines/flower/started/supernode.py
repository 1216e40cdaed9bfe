"""flower-supernode that asks for work every SPARSONA_IDLE seconds, where that is set; Flower's own asks every three.

It also says more often that it is alive. The SuperLink keeps the place of a node that was killed for twice the interval
that the node has named: with Flower's 30 s, a node that is started again is let in after up to a minute.
"""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace

from flwr.supernode.cli import flower_supernode

ALIVE = 12
"""Seconds. The SuperLink takes no less than 10."""

if __name__ == "__main__":
    idle = float(os.environ.get("SPARSONA_IDLE", "inf"))
    loop = sys.modules["flwr.supernode.start_client_internal"]
    setattr(loop, "time", SimpleNamespace(sleep=lambda wanted: time.sleep(min(wanted, idle))))  # noqa: B010
    for name in ("flwr.supernode.fleet_http_connection", "flwr.supercore.heartbeat"):
        setattr(sys.modules[name], "HEARTBEAT_DEFAULT_INTERVAL", ALIVE)  # noqa: B010
    flower_supernode()
