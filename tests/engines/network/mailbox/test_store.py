"""Mailboxes on real servers on loopback: a folder, OpenSSH's sftp, S3 and WebDAV."""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flower_helpers import Federation
from mailbox_helpers import Together

from sparsona.engines.network.flower.processes import free_port
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.engines.network.serverapp import NetworkRun
from sparsona.errors import InputError, StoreError
from sparsona.experiment import to_toml

STORES = ("folder", "sftp", "s3", "webdav")


def needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")


def wait_until_open(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.1)
        else:
            return


def configured(patch: pytest.MonkeyPatch, protocol: str, **settings: Any) -> None:
    """What a user writes into fsspec's configuration."""
    from fsspec.config import conf

    patch.setitem(conf, protocol, settings)


def sftp(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    needs("paramiko")
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if sshd is None:
        pytest.skip("needs sshd: apt-get install openssh-server")
    if not os.geteuid():
        Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    port, config = free_port(), folder / "sshd_config"
    lines = [f"HostKey {folder / 'host'}", f"AuthorizedKeysFile {folder / 'user.pub'}", "StrictModes no", "UsePAM no"]
    lines += [f"Port {port}", "ListenAddress 127.0.0.1", "PermitRootLogin yes", "Subsystem sftp internal-sftp"]
    config.write_text("\n".join([*lines, f"PidFile {folder / 'pid'}"]) + "\n")
    with subprocess.Popen([sshd, "-D", "-f", str(config)], stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_open(port)
            configured(patch, "sftp", key_filename=str(folder / "user"), look_for_keys=False, allow_agent=False)
            yield f"sftp://{getpass.getuser()}@127.0.0.1:{port}{folder / 'box'}"
        finally:
            server.terminate()


def s3(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    needs("s3fs", "moto", "flask", "flask_cors")
    from moto.server import ThreadedMotoServer

    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    try:
        wait_until_open(port)
        configured(patch, "s3", endpoint_url=f"http://127.0.0.1:{port}", key="a", secret="b")
        import s3fs

        s3fs.S3FileSystem().mkdir(f"study-{port}")
        yield f"s3://study-{port}/box"
    finally:
        server.stop()


def webdav(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    needs("webdav4", "wsgidav", "cheroot")
    from cheroot.wsgi import Server
    from wsgidav.wsgidav_app import WsgiDAVApp

    (folder / "box").mkdir()
    port, users = free_port(), {"user": {"password": "a word"}}
    app = WsgiDAVApp(
        {
            "provider_mapping": {"/dav": str(folder / "box")},
            "simple_dc": {"user_mapping": {"*": users}},
            "logging": {"enable": False, "enable_loggers": []},
            "verbose": 0,
        }
    )
    server = Server(("127.0.0.1", port), app)
    thread = threading.Thread(target=server.start, daemon=True)
    thread.start()
    try:
        wait_until_open(port)
        yield f"webdav+http://user:a%20word@127.0.0.1:{port}/dav"
    finally:
        server.stop()
        thread.join(30)


def folder(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    yield str(folder / "box")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    starting = {"folder": folder, "sftp": sftp, "s3": s3, "webdav": webdav}
    yield from starting[request.param](tmp_path / "served", monkeypatch)


@pytest.mark.network
def test_a_run_over_a_real_server_gives_the_simulators_digest(url: str, tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedspa", rounds=2)
    carrier = Together(url, federation.carrier.nodes, tmp_path)
    carrier.silence = 5.0
    carrier.clear()
    found = NetworkRun(carrier, federation.home, to_toml(federation.experiment), "run", 120.0).execute()
    simulated = federation.simulated()
    assert (found["digest"], found["bytes"]) == (simulated["digest"], simulated["bytes"])
    assert SharedFolder(url).files("server") == {}
    assert all(SharedFolder(url).files(f"nodes/{client}") == {} for client in federation.clients)


@pytest.mark.network
def test_files_appear_whole_replace_others_and_go(url: str) -> None:
    store, size, seen = SharedFolder(url), 300_000, set[int]()
    assert store.files("nodes/ward=207") == {}

    def write() -> None:
        writer = SharedFolder(url)
        for number in range(4):
            writer.put(f"nodes/ward=207/{number % 2 + 1}", bytes([number]) * size)

    writing = threading.Thread(target=write)
    writing.start()
    while writing.is_alive():
        seen.update(store.files("nodes/ward=207").values())
    writing.join()
    assert seen <= {size}
    assert store.files("nodes/ward=207") == {"1": size, "2": size}
    assert store.read("nodes/ward=207/1", size) == b"\2" * size
    store.remove("nodes/ward=207/1")
    store.remove("nodes/ward=207/1")
    assert store.files("nodes/ward=207") == {"2": size}
    with pytest.raises(FileNotFoundError):
        store.read("nodes/ward=207/1", size)


def test_a_storage_that_nobody_knows_is_an_error_of_one_line() -> None:
    with pytest.raises(InputError, match="carrier-pigeon://"):
        SharedFolder("carrier-pigeon://loft").files("server")


def test_a_server_that_is_away_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not reached"):
        SharedFolder(str(tmp_path / "file")).put("server/a.1", b"x")
