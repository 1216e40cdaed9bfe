"""What Flower starts on the organiser's machine for a run, in the place of `flwr-serverapp`.

Whoever can reach the SuperLink can submit a bundle. Its code is not run: only its settings are read, by the server's
loop of the installed package.
"""

from __future__ import annotations

import sys
from typing import Any

import flwr.superlink.runtime.run_serverapp  # noqa: F401
from flwr.superlink.cli import flwr_serverapp

from sparsona.engines.flower.serverapp import app


def main() -> None:
    runtime = sys.modules["flwr.superlink.runtime.run_serverapp"]
    if not hasattr(runtime, "run_"):
        raise SystemExit("this version of flwr is not supported: it has no run_")

    def run(grid: Any, context: Any, **bundle: Any) -> Any:
        app(grid=grid, context=context)
        return context

    setattr(runtime, "run_", run)  # noqa: B010
    flwr_serverapp()


if __name__ == "__main__":
    main()
