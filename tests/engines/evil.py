"""One evil owner of four on a real network: what a run is for the three others, whatever it answers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from mood import HONEST, VARIABLE
from network_helpers import prepared_for

from sparsona.data.dataset import Array
from sparsona.engines.network.deploy import (
    ORGANISER,
    LocalNodes,
    LoopbackFederation,
    MailboxFederation,
    local_federation,
    submit,
)
from sparsona.engines.network.keys import public_keys
from sparsona.engines.network.mailbox.boxes import MailboxCarrier
from sparsona.engines.network.mailbox.seal import Seal
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.engines.network.serverapp import NetworkRun
from sparsona.errors import RunError
from sparsona.experiment import Experiment, to_toml
from sparsona.export.files import model_of
from sparsona.prepare import prepare
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord

BAD, GOOD = "c1", ("c0", "c2", "c3")
NODE = Path(__file__).parent / "network" / "hostile" / "moody_node.py"
LEFT_OUT = "fit: an error of escapes"
"""A lie after which nothing of the evil owner is in any model."""
IDLE = 0.2
"""Seconds between two looks into a mailbox."""
ROUNDS, LONG = 2, 240.0
LONGER = 3.0
"""A start and a round wait for a silent owner this many times as long as a whole run takes. So a busy machine has no
influence."""
L = TypeVar("L", bound=LocalNodes)
Run = Callable[[Experiment, str, float], Path]
"""Runs an experiment under a name, with at least three clients, which all join before a timeout in seconds."""


@dataclass
class Came:
    """What came of a run: why it ended, its records, the weights that each honest owner has, and how long it took."""

    why: str = ""
    seconds: float = 0.0
    lines: list[ClientRecord] = field(default_factory=list)
    weights: dict[str, dict[str, Array]] = field(default_factory=dict)


@contextlib.contextmanager
def evil_federation(local: L, mood: Path) -> Iterator[L]:
    """Four nodes, of which one lies as the file `mood` says."""
    mood.write_text(HONEST)
    before, start = os.environ.get(VARIABLE), local.start_node

    def start_node(client: str, script: Path | None = None) -> None:
        start(client, NODE if client == BAD else script)

    setattr(local, "start_node", start_node)  # noqa: B010
    os.environ[VARIABLE] = str(mood)
    prepared = prepared_for("fedavg", clients=4, partition="iid")
    try:
        with local_federation(local, prepared.setup.federation, prepared.experiment) as running:
            yield running
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def by_mailbox(local: MailboxFederation) -> Run:
    """Runs in this process, so that whatever a lie raises is seen here."""

    def run(experiment: Experiment, name: str, patience: float) -> Path:
        keys = public_keys(local.folder / "public-keys")
        mine = local.folder / ORGANISER / ORGANISER
        seals = {client: Seal(mine, key) for client, key in keys.items()}
        carrier, home = MailboxCarrier(SharedFolder(local.mailbox), seals, IDLE), local.folder / "server"
        (home / "runs").mkdir(parents=True, exist_ok=True)
        try:
            NetworkRun(carrier, home, to_toml(experiment), name, patience, len(GOOD)).execute()
        finally:
            carrier.close()
        return home / "runs" / name

    return run


def by_flower(local: LoopbackFederation) -> Run:
    """Runs that are submitted to a SuperLink with TLS."""

    def run(experiment: Experiment, name: str, patience: float) -> Path:
        submit(experiment, local.address, local.ca, name, patience, lambda line: None, len(GOOD))
        return local.server.home / "runs" / name

    return run


class Trial:
    """Four nodes, one of them evil; the first two runs are those that all others are compared with."""

    def __init__(self, local: LocalNodes, run: Run, mood: Path) -> None:
        self._local, self._run, self._mood, self._number = local, run, mood, 0
        self._wait = LONG
        self._references = [self.tell(HONEST), self.tell(LEFT_OUT)]
        assert not any(one.why for one in self._references), self._references
        self._wait = LONGER * self._references[1].seconds

    def tell(self, lie: str) -> Came:
        """What comes of a run in which the evil owner tells this lie."""
        self._number += 1
        name = f"run-{self._number}"
        settings = {"data": "digits", "clients": 4, "partition": "iid", "seed": 5, "rounds": ROUNDS}
        prepared = prepare({**settings, "method": "fedavg", "schedule": {"deadline": self._wait}})
        self._mood.write_text(lie)
        began = time.monotonic()
        try:
            run = self._run(prepared.experiment, name, self._wait)
        except RunError as error:
            return Came(str(error))
        finally:
            self._mood.write_text(HONEST)
        weights = {client: weights_of(self._local, client) for client in GOOD}
        return Came("", time.monotonic() - began, RunDirectory(run).lines(), weights)

    def harm(self, found: Came) -> str:
        """What a lie has cost the others beyond its teller's share; empty if nothing.

        Their models must be those of a run in which the evil owner is honest, or in which nothing of it counts.
        """
        if found.why:
            return f"it ended: {found.why}"
        others = [line for line in found.lines if line.client in GOOD]
        if len(others) != ROUNDS * len(GOOD) or not all(line.arrived and not line.refused for line in others):
            return f"the others took part {sum(line.arrived for line in others)} times"
        same = any(_alike(found, one) for one in self._references)
        return "" if same else "the others' models are not those of any honest run"


def weights_of(local: LocalNodes, client: str) -> dict[str, Array]:
    file = local.place(client) / "state" / "runs" / f"{client}.safetensors"
    return dict(model_of(file.read_bytes(), ".safetensors", str(file)).tensors)


def _alike(a: Came, b: Came) -> bool:
    pairs = [(a.weights[c][name], b.weights[c][name]) for c in GOOD for name in a.weights[c]]
    return all(np.allclose(mine, theirs, atol=1e-6) for mine, theirs in pairs)
