"""A whole federation on loopback: SuperLink, SuperNodes, TLS and keys. The simulator says what must come out."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flower_helpers import SPOILED
from mood import HONEST, SPOILING, TWICE, VARIABLE

pytest.importorskip("flwr", reason='the network needs Flower: pip install "sparsona[flower]"')

from sparsona.api import execute
from sparsona.engines.flower.deploy import LOCALHOST, Local, local_federation
from sparsona.engines.flower.keys import CA, make_certificates, make_node_key
from sparsona.engines.flower.processes import STARTED, SUPERNODE, Child, environment, free_port, supernode
from sparsona.engines.flower.started.sparsona_records import BODY, HEAD, SMALL, BadParcel, from_record, to_record
from sparsona.prepare import Prepared, prepare
from sparsona.runs.directory import RunDirectory

pytestmark = pytest.mark.network

SETTINGS = {
    "data": "digits",
    "clients": 3,
    "partition": "dirichlet-classes:0.5",
    "seed": 5,
    "rounds": 2,
    "evaluation": {"every": 0, "post": "participants"},
}
METHODS = ("fedpse", "fedspa", "pfednet", "pfedgate")
HOSTILE = Path(__file__).parent / "hostile"
LONG = 180.0
CALM = pytest.mark.xdist_group("calm")
ROUGH = pytest.mark.xdist_group("rough")
"""Tests of one group share a federation: in one all processes live on, in the other they are killed and stopped."""


def prepared_for(method: str, **settings: Any) -> Prepared:
    return prepare({**SETTINGS, "method": method, **settings})


@contextlib.contextmanager
def three_nodes(folder: Path) -> Iterator[Local]:
    with local_federation(folder / "f", prepared_for("fedavg").setup.federation, "digits") as running:
        yield running


@pytest.fixture(scope="module")
def rough(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """Three nodes for the tests that do something to them."""
    with three_nodes(tmp_path_factory.mktemp("rough")) as running:
        yield running


@pytest.fixture(scope="module")
def mood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says how c2 of the calm federation behaves."""
    file = tmp_path_factory.mktemp("mood") / "mood"
    file.write_text(HONEST)
    return file


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, mood: Path) -> Iterator[Local]:
    """Three nodes that are never stopped. The third can be made hostile."""
    with pytest.MonkeyPatch.context() as patch, three_nodes(tmp_path_factory.mktemp("calm")) as running:
        patch.setenv(VARIABLE, str(mood))
        running.nodes["c2"].stop()
        running.start_node("c2", HOSTILE / "moody_node.py")
        yield running


@contextlib.contextmanager
def in_the_mood(file: Path, mood: str) -> Iterator[None]:
    file.write_text(mood)
    try:
        yield
    finally:
        file.write_text(HONEST)


def wait_for(what: Callable[[], object], seconds: float = LONG) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


def processes_of(folder: Path) -> dict[int, str]:
    """The processes that have a folder in their command or their environment, and their commands."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command, state = (entry / "cmdline").read_bytes(), (entry / "stat").read_text().rpartition(")")[2]
            around = (entry / "environ").read_bytes()
        except OSError:
            continue
        if state.split()[0] != "Z" and str(folder).encode() in command + around:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode()
    return found


def kill(folder: Path, command: str = "") -> None:
    """Kill -9, all at once, the processes of a folder whose command has this in it."""
    doomed = [pid for pid, line in processes_of(folder).items() if command in line]
    assert doomed
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)


def halt(pid: int, seconds: float) -> None:
    """Stop a process for a while, in a process that goes on to continue it whatever happens to this one."""
    subprocess.run(
        ["sh", "-c", f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}"], check=True, start_new_session=True
    )


def in_background(local: Local, prepared: Prepared, name: str) -> tuple[threading.Thread, list[BaseException]]:
    problems: list[BaseException] = []

    def run() -> None:
        try:
            local.run(prepared.experiment, name)
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, problems


def log_of(local: Local, client: str) -> str:
    return (local.place(client) / "state" / "node.log").read_text()


def records_of(local: Local, name: str) -> str:
    file = local.server.home / "runs" / name / "records.jsonl"
    return file.read_text() if file.exists() else ""


def check(run: Path, prepared: Prepared) -> None:
    """The run gave what the simulator gives."""
    summary, simulated = RunDirectory(run).summary(), execute(prepared).summary
    assert summary["digest"] == simulated["digest"]
    assert summary["bytes"] == simulated["bytes"]


@pytest.fixture(scope="module")
def fedavg(calm: Local) -> tuple[Prepared, Path]:
    """A run of FedAvg that several tests look at."""
    prepared = prepared_for("fedavg")
    return prepared, calm.run(prepared.experiment, "fedavg")


@CALM
def test_the_network_gives_the_simulators_digest_and_bytes_of_fedavg(fedavg: tuple[Prepared, Path]) -> None:
    prepared, run = fedavg
    check(run, prepared)


@CALM
@pytest.mark.parametrize("method", METHODS)
def test_the_network_gives_the_simulators_digest_and_bytes(calm: Local, method: str) -> None:
    prepared = prepared_for(method)
    check(calm.run(prepared.experiment, method), prepared)


@CALM
def test_models_stay_with_their_owners_and_all_that_left_is_in_their_logs(
    calm: Local, fedavg: tuple[Prepared, Path]
) -> None:
    assert not list(calm.server.home.rglob("*.safetensors"))
    sent = 0
    for client in calm.clients:
        state = calm.place(client) / "state"
        assert state.stat().st_mode & 0o077 == 0
        assert (state / "runs" / f"{client}.safetensors").exists()
        told = log_of(calm, client).partition("the server proposes: fedavg")[2].partition("the run is over")[0]
        assert "test scores are sent" in told
        sent += sum(int(line.partition("sent ")[2].split()[0]) for line in told.splitlines() if "trained" in line)
    assert sent == RunDirectory(fedavg[1]).summary()["bytes"]["up"]


@ROUGH
def test_a_node_killed_in_a_round_comes_back_and_goes_on(rough: Local) -> None:
    prepared = prepared_for("fedspa", rounds=4)
    before = log_of(rough, "c1").count("round 1: received")
    thread, problems = in_background(rough, prepared, "killed")
    wait_for(lambda: log_of(rough, "c1").count("round 1: received") > before)
    kill(rough.place("c1"))
    rough.nodes["c1"].wait()
    rough.start_node("c1")
    thread.join(LONG)
    assert not thread.is_alive()
    assert not problems
    check(rough.server.home / "runs" / "killed", prepared)


@ROUGH
def test_a_superlink_killed_in_a_run_goes_on_where_it_stopped(rough: Local) -> None:
    prepared = prepared_for("fedpse", rounds=4)
    thread, problems = in_background(rough, prepared, "resumed")
    wait_for(lambda: '"round":2' in records_of(rough, "resumed"))
    os.kill(rough.server.pid, signal.SIGKILL)
    thread.join(LONG)
    assert problems
    rough.server.close()
    rough.start_server()
    check(rough.run(prepared.experiment, "resumed"), prepared)


@ROUGH
def test_a_server_loop_killed_in_a_run_goes_on_where_it_stopped(rough: Local) -> None:
    prepared = prepared_for("pfednet", rounds=4)
    in_background(rough, prepared, "loop")
    wait_for(lambda: '"round":2' in records_of(rough, "loop"))
    kill(rough.server.home, "serverapp.py")
    check(rough.run(prepared.experiment, "loop"), prepared)


@ROUGH
def test_by_windows_a_stopped_node_is_late_and_the_rounds_go_on(rough: Local) -> None:
    prepared = prepared_for("plga", rounds=5, schedule={"window": 4.0})
    before = log_of(rough, "c2").count("round 1: received")
    thread, problems = in_background(rough, prepared, "windows")
    wait_for(lambda: log_of(rough, "c2").count("round 1: received") > before)
    halt(rough.nodes["c2"].pid, 9)
    thread.join(LONG)
    assert not thread.is_alive()
    assert not problems
    lines = RunDirectory(rough.server.home / "runs" / "windows").lines()
    of = {client: [line for line in lines if line.client == client and line.arrived] for client in ("c0", "c2")}
    assert len(of["c2"]) < len(of["c0"])
    assert of["c2"][-1].round > 1


@CALM
def test_what_a_hostile_node_sends_is_logged_and_left_out(calm: Local, mood: Path) -> None:
    prepared = prepared_for("fedavg", rounds=len(SPOILED) + 1)
    said: list[str] = []
    with in_the_mood(mood, SPOILING):
        run = calm.run(prepared.experiment, "hostile", said.append)
    assert sum("the reply of c2 is left out" in line for line in said) == len(SPOILED)
    came = {(line.round, line.client) for line in RunDirectory(run).lines() if line.arrived}
    assert {round for round, client in came if client == "c0"} == set(range(1, len(SPOILED) + 2))
    assert (len(SPOILED) + 1, "c2") in came


@CALM
def test_two_replies_of_a_node_to_one_message_count_once(calm: Local, mood: Path) -> None:
    prepared = prepared_for("fedavg")
    stub = calm.place("c2") / "state" / "flower" / "supernode.log"
    with in_the_mood(mood, TWICE):
        run = calm.run(prepared.experiment, "twice")
    assert stub.read_text().count("a second reply is sent") == 2
    check(run, prepared)


REFUSALS = {
    "key": "Failed to activate SuperNode",
    "certificate": "CERTIFICATE_VERIFY_FAILED",
    "no TLS": "Connection attempt failed",
}


@CALM
@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_stranger_is_refused(calm: Local, wrong: str, tmp_path: Path) -> None:
    make_certificates(tmp_path / "other", [LOCALHOST])
    stranger = make_node_key(tmp_path / "keys", "c0")
    own = calm.place("c0") / "key" / "c0"
    ca = tmp_path / "other" / CA if wrong == "certificate" else calm.ca
    if wrong == "no TLS":
        env = environment(tmp_path, {})
        arguments = ["--superlink", calm.address, "--insecure", "--host", LOCALHOST, "--port", str(free_port())]
        child = Child(SUPERNODE, arguments, tmp_path / "supernode.log", env)
    else:
        key = stranger if wrong == "key" else own
        child = supernode(tmp_path, calm.address, ca, key, tmp_path / "socket", 0.3)
    try:
        log = tmp_path / "supernode.log"
        wait_for(lambda: REFUSALS[wrong] in log.read_text(), 90)
        assert "SuperNode ID" not in log.read_text()
    finally:
        child.stop()


@CALM
@pytest.mark.parametrize(("path", "status"), [("/v1/control/list-runs", 403), ("/v1/runtime/acquire-task", 403)])
def test_another_machine_is_served_only_what_nodes_need(calm: Local, path: str, status: int) -> None:
    context = ssl.create_default_context(cafile=str(calm.ca))

    def asked(path: str, source: str) -> int:
        line = http.client.HTTPSConnection(LOCALHOST, calm.port, context=context, source_address=(source, 0))
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


def deploy_local(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The command in a process whose descendants are all known by the folder of their temporary files."""
    command = [sys.executable, "-m", "sparsona", "deploy", "local", "--data", "digits", "--rounds", "2", *options]
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def test_deploy_local_ends_with_the_simulators_digest_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with deploy_local(tmp_path, "--nodes", "3", "--method", "fedpse") as running:
        out, err = running.communicate(timeout=LONG)
    assert running.returncode == 0, err
    digests = [line.split()[-1] for line in out.splitlines() if line.startswith("digest of the ")]
    assert len(digests) == 2
    assert len(set(digests)) == 1
    assert "the simulator gives the same digest and the same bytes" in out
    assert not processes_of(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_deploy_local_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    with deploy_local(tmp_path, "--nodes", "1", "--method", "fedavg", "--no-check") as running:
        assert running.stderr is not None
        assert any("c0 is here" in line for line in running.stderr)
        assert len(processes_of(tmp_path)) >= 5
        running.send_signal(number)
        running.communicate(timeout=60)
    wait_for(lambda: not processes_of(tmp_path), 60 if number == signal.SIGKILL else 10)
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())
