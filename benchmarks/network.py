"""The network on loopback: seconds a round against Flower's own FedAvg, bytes on the wire, large frames, many nodes.

    python benchmarks/network.py ours|flower|wire|large|nodes|warm

- ours, flower: seconds a round of FedAvg on the digits, three nodes, the same model, one epoch; ours, and Flower's own
  Strategy with its processes as they come;
- wire: bytes that the loopback interface counts for a run, against the frames that the ledger counts. Everything is
  counted: polls, logs, TLS, and each frame twice, since it crosses loopback again between a SuperNode and its script;
- large: seconds and bytes of rounds whose frames have about 50 MB;
- nodes: seconds a round with 20 nodes;
- warm: seconds that a process takes to import Flower, and Flower and torch: a message to a warm node starts neither.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sparsona.engines.flower.bundle import write_bundle
from sparsona.engines.flower.deploy import LOCALHOST, local_federation
from sparsona.engines.flower.keys import CA, CERTIFICATE, KEY, make_certificates, make_node_key
from sparsona.engines.flower.owned import write_share
from sparsona.engines.flower.processes import Child, Flwr, environment, free_port, wait_until_open
from sparsona.prepare import prepare
from sparsona.runs.directory import RunDirectory

SETTINGS = {"method": "fedavg", "data": "digits", "partition": "iid", "evaluation": {"every": 0}}


def deployed(clients: int, rounds: int, **settings: Any) -> tuple[dict[str, Any], list[float], int]:
    """A run on loopback: its summary, the seconds at which its rounds ended, the bytes on the interface."""
    prepared = prepare({**SETTINGS, "clients": clients, "rounds": rounds, **settings})
    ends: list[float] = []

    def note(line: str) -> None:
        if line.startswith("round "):
            ends.append(time.monotonic())

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "f"
        with local_federation(place, prepared.setup.federation, prepared.experiment.data) as running:
            before = loopback()
            where = running.run(prepared.experiment, say=note)
            return RunDirectory(where).summary(), ends, loopback() - before


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
    _, ends, _ = deployed(3, 8)
    print(f"ours: {median(gaps(ends)):.2f} s a round (median of {len(ends) - 1}), 3 nodes")


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
        children = [Child("superlink", link, environment(home, {}), place / "link.log", 3.0)]
        try:
            wait_until_open(LOCALHOST, port, children[0])
            flwr = Flwr(home, f"{LOCALHOST}:{port}", certificates / CA)
            for client in prepared.setup.task.clients:
                share, own = place / f"{client}.npz", place / client
                write_share(share, prepared.setup.federation, client)
                key = make_node_key(own, client)
                flwr.register(Path(f"{key}.pub"))
                node = ["--superlink", f"{LOCALHOST}:{port}", "--root-certificates", str(certificates / CA)]
                node += ["--auth-supernode-private-key", str(key), "--host", LOCALHOST, "--port", str(free_port())]
                node += ["--node-config", f'share="{share}"']
                children.append(Child("supernode", node, environment(own, {}), place / f"{client}.log", 3.0))
            app = write_bundle(place / "app", "", "run", 300.0)
            (app / "sparsona_run" / "client_app.py").write_text(CLIENT)
            (app / "sparsona_run" / "server_app.py").write_text(SERVER)
            out = flwr.run(app).communicate()[0]
            ends = [float(line.split()[-1]) for line in out.splitlines() if "took " in line]
            print(f"Flower's FedAvg: {median(gaps(ends)):.2f} s a round (median of {len(ends) - 1}), 3 nodes")
        finally:
            for child in reversed(children):
                child.stop()


def wire() -> None:
    summary, _, travelled = deployed(3, 5, model="mlp:2000")
    counted = summary["bytes"]["up"] + summary["bytes"]["down"]
    print(f"ledger {counted} bytes, loopback {travelled} bytes: {travelled / counted:.2f} x")


def large() -> None:
    summary, ends, travelled = deployed(2, 3, model="mlp:160000", packing="plain", seed=1)
    frames = summary["bytes"]["down"] / 6
    print(f"{frames / 1e6:.0f} MB a frame: {', '.join(f'{g:.1f} s' for g in gaps(ends))} a round")
    print(f"ledger {summary['bytes']['up'] + summary['bytes']['down']} bytes, loopback {travelled}")


def nodes() -> None:
    _, ends, _ = deployed(20, 3)
    print(f"20 nodes: {', '.join(f'{gap:.1f} s' for gap in gaps(ends))} a round")


def warm() -> None:
    for what in ("flwr.supernode.cli", "flwr.supernode.cli, torch"):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", f"import {what}"], check=True)
        print(f"a process that imports {what}: {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    {"ours": ours, "flower": flower, "wire": wire, "large": large, "nodes": nodes, "warm": warm}[sys.argv[1]]()
