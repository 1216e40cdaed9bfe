"""Starts flower-superlink or flower-supernode as a child that ends with its parent, however the parent ends.

    python flower.py superlink|supernode SECONDS ARGUMENTS...

Standard input is a pipe from the parent: when it closes, this process ends. SECONDS is how long a SuperNode that has
nothing to do waits before it asks again; Flower itself waits three.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import SimpleNamespace


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
    os._exit(1)


def main() -> None:
    which, seconds = sys.argv[1], float(sys.argv[2])
    sys.argv = [f"flower-{which}", *sys.argv[3:]]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if which == "superlink":
        from flwr.superlink.cli import flower_superlink

        flower_superlink()
        return
    from flwr.supernode.cli import flower_supernode

    loop = sys.modules["flwr.supernode.start_client_internal"]
    setattr(loop, "time", SimpleNamespace(sleep=lambda wanted: time.sleep(min(wanted, seconds))))  # noqa: B010
    flower_supernode()


if __name__ == "__main__":
    main()
