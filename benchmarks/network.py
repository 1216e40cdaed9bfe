"""The network on loopback: seconds a round against Flower's own FedAvg, bytes on the wire, large frames, many nodes.

    python benchmarks/network.py ours|flower|wire|large|large-wire|nodes|warm

- ours, flower: seconds a round of FedAvg on the digits, three nodes, the same model, one epoch; ours, and Flower's own
  Strategy with its processes as they come;
- wire: bytes of a run on the connections between the nodes and the SuperLink, as a relay between them counts them, and
  on the whole loopback interface, against the frames that the ledger counts. Polls, logs and TLS are counted too;
- large, large-wire: seconds a round, and bytes, with frames of about 50 MB;
- nodes: seconds a round with 20 nodes;
- warm: seconds that a process takes to import Flower, and Flower and torch: a message to a warm node starts neither.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from sparsona.engines.network.deploy import LOCALHOST, LoopbackFederation, local_federation
from sparsona.engines.network.flower.bundle import write_bundle
from sparsona.engines.network.flower.processes import (
    SUPERLINK,
    Child,
    Flwr,
    environment,
    free_port,
    stop_all,
    wait_until_open,
)
from sparsona.engines.network.keys import CA, CERTIFICATE, KEY, make_certificates, make_node_key
from sparsona.engines.network.owned import write_share
from sparsona.prepare import prepare
from sparsona.runs.directory import RunDirectory

SETTINGS = {"method": "fedavg", "data": "digits", "partition": "iid", "evaluation": {"every": 0}}


@dataclass(frozen=True)
class Counts:
    """Bytes to the server and back: by the ledger, on the wire; and on the whole loopback interface."""

    ledger_up: int = 0
    ledger_down: int = 0
    wire_up: int = 0
    wire_down: int = 0
    interface: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(mine - theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@contextlib.contextmanager
def federation(clients: int, rounds: int, options: Sequence[str] = (), **settings: Any) -> Iterator[Run]:
    """Nodes on loopback, and what runs so many rounds on them: it returns the bytes of the ledger, up and down."""
    prepared = prepare({**SETTINGS, "clients": clients, "rounds": rounds, **settings})

    def run(rounds: int, say: Callable[[str], None] = lambda line: None) -> tuple[int, int]:
        experiment = prepared.experiment.model_copy(update={"rounds": rounds})
        found = RunDirectory(running.run(experiment, f"rounds-{rounds}", say)).summary()["bytes"]
        return found["up"], found["down"]

    data = prepared.setup.federation
    with (
        tempfile.TemporaryDirectory() as scratch,
        local_federation(
            LoopbackFederation(Path(scratch) / "f", sorted(data.clients), options), data, prepared.experiment
        ) as running,
    ):
        yield Run(run, running.port)


@dataclass(frozen=True)
class Run:
    """Runs so many rounds, and the port of the SuperLink."""

    rounds: Callable[..., tuple[int, int]]
    port: int


def seconds_a_round(clients: int, rounds: int, **settings: Any) -> list[float]:
    """Seconds from round to round."""
    with federation(clients, rounds, **settings) as run:
        return timed(run, rounds)


def timed(run: Run, rounds: int) -> list[float]:
    ends: list[float] = []

    def note(line: str) -> None:
        if line.startswith("round "):
            ends.append(time.monotonic())

    run.rounds(rounds, note)
    return gaps(ends)


def bytes_of_rounds(clients: int, rounds: int, **settings: Any) -> Counts:
    """The bytes of so many rounds but the first.

    A run of one round goes before it, and its bytes are taken off: so greetings, logs of the start, evaluations and the
    end, which the ledger does not count, are not counted at all.
    """
    relay = Relay()

    def once(rounds: int) -> Counts:
        before = Counts(0, 0, relay.up, relay.down, loopback())
        return Counts(*run.rounds(rounds), relay.up, relay.down, loopback()) - before

    with federation(clients, rounds, ("--superlink", f"{LOCALHOST}:{relay.port}"), **settings) as run:
        relay.start(run.port)
        first = once(1)
        return once(rounds) - first


class Relay:
    """A port between the nodes and the SuperLink that counts what passes. TLS goes through it unopened."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOCALHOST, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.up = self.down = 0
        self._counting = threading.Lock()

    def start(self, target: int) -> None:
        threading.Thread(target=self._accept, args=(target,), daemon=True).start()

    def _accept(self, target: int) -> None:
        while True:
            node, _ = self._listener.accept()
            server = socket.create_connection((LOCALHOST, target))
            threading.Thread(target=self._pass, args=(node, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, node, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**18):
                target.sendall(data)
                with self._counting:
                    self.up, self.down = self.up + up * len(data), self.down + (not up) * len(data)
            target.shutdown(socket.SHUT_WR)


def loopback() -> int:
    """Bytes that the loopback interface has sent so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])
    return 0


def gaps(ends: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def ours() -> None:
    seconds = seconds_a_round(3, 8)
    print(f"ours: {median(seconds):.2f} s a round (median of {len(seconds)}), 3 nodes")


CLIENT = """
import json, numpy as np, torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()
@app.train()
def train(message, context):
    held = np.load(context.node_config["share"])
    count = int(held["sizes"][0])
    x = torch.tensor(held["inputs"][:count]).float().flatten(1) / 255
    y = torch.tensor(held["targets"][:count])
    net = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    step = torch.optim.SGD(net.parameters(), lr=0.1)
    for at in torch.randperm(count).split(32):
        step.zero_grad()
        torch.nn.functional.cross_entropy(net(x[at]), y[at]).backward()
        step.step()
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": count})}
    return Message(RecordDict(content), reply_to=message)
"""
SERVER = """
import time, torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
app = ServerApp()
@app.main()
def main(grid, context):
    net = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
    class Timed(FedAvg):
        def aggregate_train(self, server_round, replies):
            print(f"took {time.monotonic():.3f}", flush=True)
            return super().aggregate_train(server_round, replies)
    strategy = Timed(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=5)
"""


def flower() -> None:
    """Flower's own strategy, apps and processes; TLS and keys as ours."""
    prepared = prepare({**SETTINGS, "clients": 3})
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        home, port = place / "server", free_port()
        home.mkdir()
        make_certificates(place / "certificates", [LOCALHOST])
        certificates = place / "certificates"
        link = ["--host", LOCALHOST, "--port", str(port), "--ssl-ca-certfile", str(certificates / CA)]
        link += ["--ssl-certfile", str(certificates / CERTIFICATE), "--ssl-keyfile", str(certificates / KEY)]
        link += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        supernode = Path(sys.executable).with_name("flower-supernode")
        children = [Child(SUPERLINK, link, place / "link.log", environment(home, {}))]
        try:
            wait_until_open(LOCALHOST, port, children[0])
            flwr = Flwr(home, f"{LOCALHOST}:{port}", certificates / CA)
            for client in prepared.setup.task.clients:
                share, own = place / f"{client}.npz", place / client
                write_share(share, prepared.setup.federation, client)
                key = make_node_key(own, client)
                flwr.register([Path(f"{key}.pub")])
                node = ["--superlink", f"{LOCALHOST}:{port}", "--root-certificates", str(certificates / CA)]
                node += ["--auth-supernode-private-key", str(key), "--host", LOCALHOST, "--port", str(free_port())]
                node += ["--node-config", f'share="{share}"']
                children.append(Child(supernode, node, place / f"{client}.log", environment(own, {})))
            app = write_bundle(place / "app", "", "run", 300.0)
            (app / "sparsona_run" / "client_app.py").write_text(CLIENT)
            (app / "sparsona_run" / "server_app.py").write_text(SERVER)
            lines: list[str] = []
            flwr.run(app, lines.append)
            ends = [float(line.split()[-1]) for line in lines if "took " in line]
            print(f"Flower's FedAvg: {median(gaps(ends)):.2f} s a round (median of {len(ends) - 1}), 3 nodes")
        finally:
            stop_all(reversed(children))


def tell(counts: Counts) -> None:
    """The ledger's bytes, and those that travelled for them."""
    pairs = (("up", counts.ledger_up, counts.wire_up), ("down", counts.ledger_down, counts.wire_down))
    for way, counted, travelled in pairs:
        print(f"{way}: ledger {counted} bytes, wire {travelled}: {travelled / counted:.4f} x")
    print(f"loopback interface in all: {counts.interface / (counts.ledger_up + counts.ledger_down):.2f} x")


def wire() -> None:
    for model in ("mlp:50", "mlp:2000", "mlp:20000"):
        counts = bytes_of_rounds(3, 9, model=model)
        print(f"{model}, {counts.ledger_up / 24:.0f} bytes a frame up")
        tell(counts)


LARGE = {"model": "mlp:160000", "packing": "plain", "seed": 1}
"""Frames of 48 MB."""


def large() -> None:
    seconds = seconds_a_round(2, 4, **LARGE)
    print(f"frames of 48 MB, 2 nodes: {', '.join(f'{gap:.1f} s' for gap in seconds)} a round")


def large_wire() -> None:
    counts = bytes_of_rounds(2, 3, **LARGE)
    print(f"{counts.ledger_down / 4e6:.0f} MB a frame")
    tell(counts)


def nodes() -> None:
    seconds = seconds_a_round(20, 4)
    print(f"20 nodes: {', '.join(f'{gap:.1f} s' for gap in seconds)} a round")


def warm() -> None:
    for what in ("flwr.supernode.cli", "flwr.supernode.cli, torch"):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", f"import {what}"], check=True)
        print(f"a process that imports {what}: {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    parts = {"ours": ours, "flower": flower, "wire": wire, "large": large, "large-wire": large_wire}
    ({**parts, "nodes": nodes, "warm": warm})[sys.argv[1]]()
