"""The network on loopback: seconds a round against Flower's own FedAvg, bytes on the wire, large frames, many nodes.

    python benchmarks/network.py ours|flower|wire|large|large-wire|warm
    python benchmarks/network.py nodes|nodes-mailbox [NUMBER [ROUNDS]]

- ours, flower: seconds a round of FedAvg on the digits, three nodes, the same model, one epoch; ours, and Flower's own
  Strategy with its processes as they come;
- wire: bytes of a run on the connections between the nodes and the SuperLink, as a relay between them counts them, and
  on the whole loopback interface, against the frames that the ledger counts. Polls, logs and TLS are counted too;
- large, large-wire: seconds a round, and bytes, with frames of about 50 MB;
- nodes, nodes-mailbox: seconds per round and memory with 50 light nodes, over Flower and through a mailbox. A light
  node is a thread: it holds what `sparsona node` holds and asks as a SuperNode asks, but all share one process;
- warm: seconds that a process takes to import Flower, and Flower and torch: a message to a warm node starts neither.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from sparsona.engines.network.carrier import Answer, Body, OrderGuard, checked_number
from sparsona.engines.network.consent import Rules, Terms
from sparsona.engines.network.deploy import (
    LOCALHOST,
    LocalNodes,
    LoopbackFederation,
    MailboxFederation,
    local_federation,
)
from sparsona.engines.network.flower.processes import (
    STARTED,
    SUPERLINK,
    Child,
    Flwr,
    environment,
    free_port,
    stop_all,
    wait_until_open,
    write_bundle,
)
from sparsona.engines.network.flower.started.sparsona_records import NUMBER, Head, from_record, to_record
from sparsona.engines.network.keys import CA, CERTIFICATE, KEY, make_certificates, make_node_key
from sparsona.engines.network.mailbox.boxes import Inbox
from sparsona.engines.network.mailbox.seal import Seal
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.engines.network.node import Node
from sparsona.engines.network.own_data import write_share
from sparsona.method import ClientId
from sparsona.prepare import prepare
from sparsona.runs.directory import RunDirectory
from sparsona.runs.names import file_stem
from sparsona.training.determinism import make_deterministic

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


class LightNodes(LocalNodes):
    """All nodes as threads of one process: with a process per node, 200 of them need 100 GB."""

    def start_node(self, client: ClientId, script: Path | None = None) -> None:
        if client == self.clients[-1]:
            own = {"folder": str(self.folder), "clients": list(self.clients), "line": self.line(client)}
            self.nodes[client] = Child(Path(__file__), ["light", json.dumps(own)], self.folder / "light.log")


class LightLoopback(LightNodes, LoopbackFederation):
    """Light nodes and a SuperLink."""


class LightMailbox(LightNodes, MailboxFederation):
    """Light nodes and a mailbox."""


def light(settings: str) -> None:
    """Run all light nodes of a federation; this is the process that `LightNodes` starts."""
    import torch

    torch.set_num_threads(1)
    make_deterministic()
    given = json.loads(settings)
    folder, options = Path(given["folder"]), dict(zip(given["line"][::2], given["line"][1::2], strict=True))
    terms = Terms.of(folder / "agreed.toml", 0)
    logging.basicConfig(level=logging.WARNING)
    turn = threading.Lock()
    for client in given["clients"]:
        place = folder / file_stem(client)
        key = place / "key" / file_stem(client)
        node = Node(client, place / "data", place / "state", Rules(least_rows=1), terms=terms)
        guard = OrderGuard(OneByOne(node, turn), place / "numbers")
        if "--mailbox" in options:
            store, seal = SharedFolder(options["--mailbox"]), Seal(key, Path(options["--server-key"]))
            serve = partial(Inbox(store, seal, client, guard, 2**28).serve, float(options["--idle"]))
        else:
            serve = partial(light_supernode, guard, options["--superlink"], options["--ca"], key)
        threading.Thread(target=serve, daemon=True).start()
    threading.Event().wait()


@dataclass(frozen=True)
class OneByOne:
    """A node that takes its turns while no other node of this process does."""

    node: Node
    turn: threading.Lock

    def answer(self, head: Head, body: Body) -> Answer:
        with self.turn:
            return self.node.answer(head, body)


def whole(body: bytes, most: int) -> bytes:
    """The body of a message, however long it is."""
    return body


def light_supernode(guard: OrderGuard, address: str, ca: str, key: Path) -> None:
    """Do as a SuperNode of `sparsona node` does, with the same requests and pauses, in a thread."""
    from flwr.app import Message
    from flwr.supercore.inflatable import inflatable_object, inflatable_utils
    from flwr.supernode.fleet_http_connection import http_request_response

    sys.path.insert(0, str(STARTED))
    from supernode import Sleep, keep_connections, say_often_alive

    keep_connections()
    say_often_alive()
    private = load_ssh_private_key(key.read_bytes(), None)
    sleep, seen, pair = Sleep(1.0), set[int](), (private, private.public_key())
    with http_request_response(address, False, Path(ca).read_bytes(), pair) as connected:
        _, receive, send, get_run, get_fab, pull, push, confirm = connected

        def once() -> bool:
            if (came := receive()) is None:
                return False
            about, tree = came
            run, name = about.metadata.run_id, about.metadata.message_id
            if run not in seen:
                get_fab(get_run(run).fab_hash, run)
                seen.add(run)
            parts = [one.object_id for one in inflatable_object.iterate_object_tree(tree)]
            contents = inflatable_utils.pull_objects(parts, partial(pull, run))
            message = inflatable_utils.inflate_object_from_contents(name, contents)
            message.metadata.__dict__["_message_id"] = name
            confirm(run, name)
            head, body = from_record(message.content)
            number = checked_number(head.pop(NUMBER))
            answer = guard.answer(number, head, partial(whole, body))
            guard.done(number)
            reply = Message(to_record(*answer), reply_to=message)
            with inflatable_object.no_object_id_recompute():
                reply.metadata.__dict__["_message_id"] = reply.object_id
                own = inflatable_object.get_all_nested_objects(reply)
                wanted, session = send(reply, inflatable_object.get_object_tree(reply), 0.1)
                inflatable_utils.push_objects(own, partial(push, run, session), object_ids_to_push=wanted)
            return True

        while True:
            try:
                if not once():
                    sleep(3)
            except Exception as error:  # noqa: BLE001  (a SuperNode goes on too)
                print(f"{key.name}: {error!r}", flush=True)


def many(carrier: Callable[..., LightNodes], number: int = 50, rounds: int = 10, **more: Any) -> None:
    """Print the seconds per round, and the peak memory of each process."""
    prepared = prepare({**SETTINGS, "clients": number, "rounds": rounds})
    data, ends = prepared.setup.federation, [time.monotonic()]

    def note(line: str) -> None:
        if line.startswith("round "):
            ends.append(time.monotonic())
        elif " is here" not in line:
            print(f"  {time.monotonic() - ends[0]:.0f} s: {line[:200]}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        given = {name: str(Path(scratch) / value) for name, value in more.items()}
        start = carrier(Path(scratch) / "f", sorted(data.clients), **given)
        with local_federation(start, data, prepared.experiment) as running:
            ends[0] = time.monotonic()
            found = running.run(prepared.experiment, "run", note)
            memory = {"the run's loop": RunDirectory(found).summary()["peak_rss_mb"]}
            memory["all light nodes"] = sum(peak_mb(child.pid) for child in running.nodes.values())
            if isinstance(running, LoopbackFederation):
                memory["the SuperLink"] = peak_mb(running.server.link.pid)
    each = gaps(ends[1:])
    took = f"greeting and first round {ends[1] - ends[0]:.0f} s, then {median(each):.1f} s a round"
    print(f"{number} nodes, {rounds} rounds: {took} (from {min(each):.1f} to {max(each):.1f})")
    print("peak memory: " + ", ".join(f"{name} {size:.0f} MB" for name, size in memory.items()))


def peak_mb(process: int) -> float:
    """The peak resident memory of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def warm() -> None:
    for what in ("flwr.supernode.cli", "flwr.supernode.cli, torch"):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", f"import {what}"], check=True)
        print(f"a process that imports {what}: {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    parts: dict[str, Callable[..., None]] = {"ours": ours, "flower": flower, "wire": wire, "large": large}
    parts |= {"large-wire": large_wire, "warm": warm, "nodes": partial(many, LightLoopback)}
    parts |= {"nodes-mailbox": partial(many, LightMailbox, mailbox="mailbox")}
    if sys.argv[1] == "light":
        light(sys.argv[2])
    else:
        parts[sys.argv[1]](*map(int, sys.argv[2:]))
