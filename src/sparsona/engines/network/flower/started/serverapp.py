"""The process that Flower starts on the organiser's machine for a run, in place of `flwr-serverapp`.

Anyone who reaches the SuperLink can submit a bundle. Its code is not run. The server's loop of the installed package
reads only its settings.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import flwr.superlink.runtime.run_serverapp  # noqa: F401
from sparsona_entry import command


def _end_with_superlink() -> None:
    """End this process when the SuperLink has ended.

    A killed SuperLink cannot stop the loop. Left alone, the loop would keep the lock of its run directory until its
    next call fails. If a new SuperLink answers at the same port, that is never.
    """
    process = int(os.environ["SPARSONA_SUPERLINK"])
    while True:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            os._exit(1)
        time.sleep(0.5)


def main() -> None:
    threading.Thread(target=_end_with_superlink, daemon=True).start()
    runtime = sys.modules["flwr.superlink.runtime.run_serverapp"]
    if not hasattr(runtime, "run_"):
        raise SystemExit("this version of flwr is not supported: it has no run_")

    def run(grid: Any, context: Any, **bundle: Any) -> Any:
        # The SuperLink gives the run up if this process does not report within 30 s, so torch is imported after that.
        from sparsona.engines.network.flower.grid import app

        app(grid=grid, context=context)
        return context

    setattr(runtime, "run_", run)  # noqa: B010
    command("flwr-serverapp")()


if __name__ == "__main__":
    main()
