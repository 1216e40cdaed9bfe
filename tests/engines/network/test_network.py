"""Three nodes that live on: digests and bytes, what stays with the owner, hostile nodes, strangers."""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flower_helpers import SPOILED
from mood import HONEST, SPOILING, TWICE, VARIABLE
from network_helpers import LONG, check, log_of, prepared_for, processes_of, three_nodes, wait_for

pytest.importorskip("flwr", reason='the network needs Flower: pip install "sparsona[flower]"')

from sparsona.engines.network.consent import Rules
from sparsona.engines.network.deploy import LOCALHOST, LoopbackFederation, submit
from sparsona.engines.network.flower.connection import MEMORY, NOT_LET_IN, PER_WEIGHT, plain_words
from sparsona.engines.network.flower.processes import STARTED, SUPERNODE, Child, environment, free_port, supernode
from sparsona.engines.network.flower.started.sparsona_records import (
    BODY,
    HEAD,
    SMALL,
    BadParcel,
    from_record,
    to_record,
)
from sparsona.engines.network.keys import CA, make_certificates, make_node_key
from sparsona.prepare import Prepared
from sparsona.runs.directory import RunDirectory

pytestmark = pytest.mark.network

METHODS = ("fedpse", "fedspa", "pfednet", "pfedgate")
HOSTILE = Path(__file__).parent / "hostile"


@pytest.fixture(scope="module")
def mood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says how c2 behaves."""
    file = tmp_path_factory.mktemp("mood") / "mood"
    file.write_text(HONEST)
    return file


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, mood: Path) -> Iterator[LoopbackFederation]:
    """Three nodes that are never stopped. The third can be made hostile."""
    start = LoopbackFederation.start_node

    def start_node(self: LoopbackFederation, client: str) -> None:
        start(self, client, *([HOSTILE / "moody_node.py"] if client == "c2" else []))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(mood))
        patch.setattr(LoopbackFederation, "start_node", start_node)
        with three_nodes(tmp_path_factory.mktemp("local")) as running:
            yield running


@contextlib.contextmanager
def in_the_mood(file: Path, mood: str) -> Iterator[None]:
    file.write_text(mood)
    try:
        yield
    finally:
        file.write_text(HONEST)


@pytest.fixture(scope="module")
def fedavg(local: LoopbackFederation) -> tuple[Prepared, Path]:
    """A run of FedAvg that several tests look at."""
    prepared = prepared_for("fedavg")
    return prepared, local.run(prepared.experiment, "fedavg")


def test_the_network_gives_the_simulators_digest_and_bytes_of_fedavg(fedavg: tuple[Prepared, Path]) -> None:
    prepared, run = fedavg
    check(run, prepared)


@pytest.mark.parametrize("method", METHODS)
def test_the_network_gives_the_simulators_digest_and_bytes(local: LoopbackFederation, method: str) -> None:
    prepared = prepared_for(method)
    check(local.run(prepared.experiment, method), prepared)


def test_models_stay_with_their_owners_and_all_that_left_is_in_their_logs(
    local: LoopbackFederation, fedavg: tuple[Prepared, Path]
) -> None:
    assert not list(local.server.home.rglob("*.safetensors"))
    sent = 0
    for client in local.clients:
        state = local.place(client) / "state"
        assert state.stat().st_mode & 0o077 == 0
        assert (state / "runs" / f"{client}.safetensors").exists()
        told = log_of(local, client).partition("the server proposes: fedavg")[2].partition("the run is over")[0]
        assert "test scores are sent" in told
        sent += sum(int(line.partition("sent ")[2].split()[0]) for line in told.splitlines() if "trained" in line)
    assert sent == RunDirectory(fedavg[1]).summary()["bytes"]["up"]


def test_what_a_hostile_node_sends_is_logged_and_left_out(local: LoopbackFederation, mood: Path) -> None:
    prepared = prepared_for("fedavg", rounds=len(SPOILED) + 1)
    said: list[str] = []
    with in_the_mood(mood, SPOILING):
        run = local.run(prepared.experiment, "hostile", said.append)
    assert sum("the reply of c2 is left out" in line for line in said) == len(SPOILED)
    came = {(line.round, line.client) for line in RunDirectory(run).lines() if line.arrived}
    assert {round for round, client in came if client == "c0"} == set(range(1, len(SPOILED) + 2))
    assert (len(SPOILED) + 1, "c2") in came


LIES = ("hello: another name", "agreed: no hash", "fit: never has the reference", "personal: a score of 999")


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_costs_its_node_alone(local: LoopbackFederation, mood: Path, lie: str) -> None:
    """`python benchmarks/owners.py` tells all lies; over a mailbox more of them are told in mailbox/test_evil.py."""
    prepared, name = prepared_for("fedavg"), lie.partition(":")[0]
    with in_the_mood(mood, lie):
        submit(prepared.experiment, local.address, local.ca, name, LONG, lambda line: None, 2)
    others = [line for line in RunDirectory(local.server.home / "runs" / name).lines() if line.client != "c2"]
    assert len(others) == 2 * prepared.experiment.rounds
    assert all(line.arrived and not line.refused for line in others)


def test_two_replies_of_a_node_to_one_message_count_once(local: LoopbackFederation, mood: Path) -> None:
    prepared = prepared_for("fedavg")
    stub = local.place("c2") / "state" / "flower" / "supernode.log"
    with in_the_mood(mood, TWICE):
        run = local.run(prepared.experiment, "twice")
    assert stub.read_text().count("a second reply is sent") == 2
    check(run, prepared)


REFUSALS = {
    "key": "Failed to activate SuperNode",
    "certificate": "CERTIFICATE_VERIFY_FAILED",
    "no TLS": "Connection attempt failed",
    "clock": "the server refuses this node's signature",
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_stranger_is_refused(
    local: LoopbackFederation, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wrong == "clock":
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HOSTILE / "slow_clock"), *sys.path]))
    make_certificates(tmp_path / "other", [LOCALHOST])
    stranger = make_node_key(tmp_path / "keys", "c0")
    own = local.place("c0") / "key" / "c0"
    ca = tmp_path / "other" / CA if wrong == "certificate" else local.ca
    if wrong == "no TLS":
        env = environment(tmp_path, {}, SPARSONA_IDLE="1", SPARSONA_TOKEN=str(own), SPARSONA_MEMORY=str(2**31))
        arguments = ["--superlink", local.address, "--insecure", "--host", LOCALHOST, "--port", str(free_port())]
        child = Child(SUPERNODE, arguments, tmp_path / "supernode.log", env)
    else:
        key = stranger if wrong == "key" else own
        child = supernode(tmp_path, local.address, ca, key, tmp_path / "socket", 0.3, 2**31)
    try:
        log = tmp_path / "supernode.log"
        wait_for(lambda: REFUSALS[wrong] in log.read_text())
        assert wrong in ("certificate", "no TLS") or plain_words(log.read_text()) == NOT_LET_IN
        assert "SuperNode ID" not in log.read_text()
    finally:
        child.stop()


@pytest.mark.parametrize(("path", "status"), [("/v1/control/list-runs", 403), ("/v1/runtime/acquire-task", 403)])
def test_another_machine_is_served_only_what_nodes_need(local: LoopbackFederation, path: str, status: int) -> None:
    context = ssl.create_default_context(cafile=str(local.ca))

    def asked(path: str, source: str) -> int:
        line = http.client.HTTPSConnection(LOCALHOST, local.port, context=context, source_address=(source, 0))
        with contextlib.closing(line):
            line.request("POST", path, b"")
            return line.getresponse().status

    assert asked(path, "127.0.0.2") == status
    assert asked(path, LOCALHOST) != status
    assert asked("/v1/fleet/pull-messages", "127.0.0.2") != status


@pytest.mark.parametrize("size", [0, 5, SMALL, SMALL + 1])
def test_a_message_holds_its_body_whatever_its_size(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    assert from_record(to_record({"kind": "turn"}, body[:size])) == ({"kind": "turn"}, body[:size])


def test_a_message_of_another_kind_is_refused() -> None:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    foreign = ArrayRecord({BODY: Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=b"0000")})
    head = ConfigRecord({HEAD: '{"kind": "turn"}'})
    for content in (RecordDict(), RecordDict({HEAD: head}), RecordDict({HEAD: head, BODY: foreign})):
        with pytest.raises(BadParcel):
            from_record(content)
    with pytest.raises(BadParcel, match="not JSON"):
        from_record(RecordDict({HEAD: ConfigRecord({HEAD: "{", BODY: b""})}))


def test_the_started_scripts_import_neither_torch_nor_sparsona() -> None:
    code = f"import sys; sys.path.insert(0, {str(STARTED)!r}); import executor; print(*sys.modules, sep='\\n')"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "torch" not in out
    assert "sparsona" not in out


def test_another_process_of_the_machine_cannot_take_a_nodes_tasks(local: LoopbackFederation) -> None:
    """The SuperNode listens on loopback, where all accounts can ask. Only who reads the owner's token gets a task."""
    home = local.place("c0") / "state" / "flower"
    token = str(home / "executor.token")
    assert stat.S_IMODE(Path(token).stat().st_mode) == 0o600
    assert stat.S_IMODE((local.server.home / "superlink.db").stat().st_mode) == 0o600
    wait_for(lambda: "connected to the server" in log_of(local, "c0"))
    command = next(line for line in processes_of(home).values() if SUPERNODE.name in line)
    address = f"{LOCALHOST}:{command.partition('--port ')[2].split()[0]}"
    asked = {
        signed: subprocess.run([sys.executable, "-c", ASK, address, signed], cwd=STARTED) for signed in ("", token)
    }
    assert {signed: found.returncode == 0 for signed, found in asked.items()} == {"": False, token: True}


def test_no_message_can_take_all_of_an_owners_memory(local: LoopbackFederation) -> None:
    home = local.place("c0") / "state" / "flower"
    wait_for(lambda: "connected to the server" in log_of(local, "c0"))
    process = next(number for number, line in processes_of(home).items() if SUPERNODE.name in line)
    most = MEMORY + PER_WEIGHT * Rules().most_weights
    assert f" {most} " in next(
        line for line in Path(f"/proc/{process}/limits").read_text().splitlines() if line.startswith("Max data size")
    )


ASK = """
import pathlib, sys
import executor
from flwr.proto.runtime_pb2 import AcquireTaskRequest
more = [executor.signed_by(pathlib.Path(sys.argv[2]))] if sys.argv[2] else []
wanted = AcquireTaskRequest(supported_task_types=[executor.TaskType.CLIENT_APP])
executor.connect(sys.argv[1], *more).AcquireTask(wanted)
"""
"""A process that asks a SuperNode for a task, signed with a token or not."""
