"""Nodes without a network: a carrier that asks node objects directly, so that failures can be made at will."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.api import execute
from sparsona.engines.network.carrier import Parcel, Returned
from sparsona.engines.network.consent import Consent, Rules, Terms
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.node import CONSENT, Node
from sparsona.engines.network.own_data import AS_AGREED, SHARE, OwnFormat, write_share
from sparsona.engines.network.serverapp import NetworkRun
from sparsona.experiment import Experiment, to_toml
from sparsona.message import Message, Stamp
from sparsona.prepare import Prepared, prepare
from sparsona.wire import encode

SETTINGS = {"data": "digits", "clients": 3, "rounds": 3, "partition": "dirichlet-classes:0.5", "seed": 5}


WEIGHTS = 3760
"""Of the model that suits the digits."""


def frame(value: float, count: int, round: int) -> bytes:
    """A FedAvg client's reply whose weights are all the same."""
    message = Message(weights=np.full(count, value, np.float32), examples=5)
    return encode(message.stamped(Stamp(round, 0))).data


SPOILED: dict[str, Callable[[bytes, int], bytes]] = {
    "garbage": lambda body, round: bytes(255 - byte for byte in body),
    "oversized": lambda body, round: body + bytes(2**24),
    "not finite": lambda body, round: frame(np.nan, WEIGHTS, round),
    "stale": lambda body, round: frame(0.0, WEIGHTS, abs(round - 1)),
    "short": lambda body, round: frame(0.0, 7, round),
}
"""Bodies that no honest FedAvg client would send in a round."""


def spoiled(kind: str, head: Head, body: bytes, round: int) -> tuple[Head, bytes]:
    """A reply with another body, and a ledger that adds up."""
    body = SPOILED[kind](body, round)
    return {**head, "ledger": [0, 0, len(body), 0.0, 0, 0]}, body


class Direct:
    """Carries parcels to node objects. `change` may replace an answer; None stands for one that never comes."""

    idle = 0.01

    def __init__(self, nodes: dict[str, Node]) -> None:
        self.nodes, self.clients, self.silence = nodes, sorted(nodes), 10.0
        self.sent: list[Parcel] = []
        self.change: Callable[[Parcel, Returned], Returned | None] = lambda parcel, answer: answer
        self.delay: dict[str, float] = {}
        self.twice = False
        self._ready: dict[str, Returned] = {}
        self._lock = threading.Lock()

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        names: list[str | None] = []
        for parcel in parcels:
            name = str(len(self.sent))
            self.sent.append(parcel)
            names.append(name)
            if parcel.head["kind"] == "turn" and parcel.head["job"] == "fit" and parcel.client in self.delay:
                threading.Thread(target=self._work, args=(name, parcel), daemon=True).start()
            else:
                self._work(name, parcel)
        return names

    def _work(self, name: str, parcel: Parcel) -> None:
        if parcel.head["kind"] == "turn" and parcel.head["job"] == "fit":
            time.sleep(self.delay.get(parcel.client, 0.0))
        head, body = self.nodes[parcel.client].answer(json.loads(json.dumps(parcel.head)), lambda most: parcel.body)
        answer = self.change(parcel, Returned(name, json.loads(json.dumps(head)), body))
        if answer is not None:
            with self._lock:
                self._ready[name] = answer

    def pull(self, names: Sequence[str]) -> list[Returned]:
        with self._lock:
            found = [self._ready.pop(name) for name in names if name in self._ready]
        return found * 2 if self.twice else found


ALL = Rules(least_rows=1)
"""As a simulation, which tells of any number of rows."""


class Federation:
    """Nodes with the data of a simulation, and the simulation itself."""

    def __init__(self, folder: Path, rules: Rules = ALL, **settings: Any) -> None:
        self.prepared: Prepared = prepare({**SETTINGS, **settings})
        self.folder, self.rules = folder, rules
        self.clients = self.prepared.setup.task.clients
        self.home = folder / "server"
        (self.home / "runs").mkdir(parents=True)
        name, _, path = self.prepared.experiment.data.partition(":")
        self.data = Path(path) if name == "folder" else folder / "data"
        if name != "folder":
            self.data.mkdir()
            for client in self.clients:
                write_share(self.data / f"{client}{SHARE}", self.prepared.setup.federation, client)
        self.carrier = Direct({client: self.node(client) for client in self.clients})

    def node(self, client: str, written: OwnFormat = AS_AGREED, base: str = "") -> Node:
        """A node's process, begun or begun again."""
        terms = Terms(self.experiment.split, self.experiment.columns, self.experiment.seed)
        return Node(client, self.data, self.folder / client, self.rules, written=written, terms=terms, base=base)

    def accept(self, client: str) -> None:
        """What an owner does who reads in its log that a question waits."""
        consent = Consent(self.folder / client / CONSENT)
        for file in (self.folder / client / CONSENT / "waiting").iterdir():
            consent.accept(file.name)

    @property
    def experiment(self) -> Experiment:
        return self.prepared.experiment

    def run(self, patience: float = 20.0, fewest: int = 0) -> dict[str, Any]:
        return NetworkRun(self.carrier, self.home, to_toml(self.experiment), "run", patience, fewest).execute()

    def simulated(self) -> dict[str, Any]:
        return execute(self.prepared).summary


def ward_tables(folder: Path, **how: Any) -> Federation:
    """Three owners of tables with a number, a category and missing values."""
    rng = np.random.default_rng(3)
    tables = folder / "tables"
    tables.mkdir()
    for k, ward in enumerate(("east", "north", "west")):
        rows = ["age,sex,label"]
        for _ in range(40):
            age = "" if rng.random() < 0.1 else f"{rng.normal(50 + k, 9):.2f}"
            rows.append(f"{age},{rng.choice(['f', 'm', 'x'][: 2 + k % 2])},{rng.choice(['ill', 'well'])}")
        (tables / f"{ward}.csv").write_text("\n".join(rows) + "\n")
    data, columns = f"folder:{tables}", {"categorical": "sex"}
    common = {"clients": 0, "partition": "groups", "columns": columns, "rounds": 2, "training": {"lr": 0.1}}
    settings = {"method": "fedavg", **common, **how}
    return Federation(folder, data=data, **settings)
