"""Where the work is done: this changes how long a run takes, and none of its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster. `address`: HOST:PORT, or auto for the one on this machine; without one a new one is started here.

    `gpus_per_worker`: the share of a GPU that a worker has; 0.25 lets four share one.
    """

    address: str = ""
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0.0


@dataclass(frozen=True)
class Resources:
    """What an engine may use: so many `workers`, 0 meaning one a core, and a cluster, for the engine that needs one."""

    workers: int = 0
    cluster: Cluster = Cluster()
