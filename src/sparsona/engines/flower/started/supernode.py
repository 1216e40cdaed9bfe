"""flower-supernode that asks for work every SPARSONA_IDLE seconds, where that is set; Flower's own asks every three."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace

from flwr.supernode.cli import flower_supernode

if __name__ == "__main__":
    idle = float(os.environ.get("SPARSONA_IDLE", "inf"))
    loop = sys.modules["flwr.supernode.start_client_internal"]
    setattr(loop, "time", SimpleNamespace(sleep=lambda wanted: time.sleep(min(wanted, idle))))  # noqa: B010
    flower_supernode()
