"""Runs a script as a child that ends with its parent, however the parent ends.

    python child.py SCRIPT ARGUMENTS...

Standard input is a pipe from the parent. When it closes, this process is asked to end, and made to after `GRACE`.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

GRACE = 10.0  # seconds between the request to end and the forced end


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
