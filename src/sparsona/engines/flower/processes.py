"""SuperLink and SuperNode as child processes, and the `flwr` command."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.engines.flower import need_flwr
from sparsona.engines.flower.keys import CA, CERTIFICATE, KEY
from sparsona.errors import RunError
from sparsona.files import write_atomically

log = logging.getLogger("sparsona.node")

STARTED = Path(__file__).parent / "started"
CONNECTION = "sparsona"
IDLE = 1.0
"""Seconds that a SuperNode without work waits before it asks the SuperLink again."""


def environment(home: Path, stands_in: Mapping[str, str], **more: str) -> dict[str, str]:
    """The environment of Flower's processes: no reports to anybody, all files in `home`.

    `stands_in` names commands of Flower and the scripts that are started in their place.
    """
    need_flwr()
    shims = home / "bin"
    shims.mkdir(parents=True, exist_ok=True)
    for name, script in stands_in.items():
        path = shims / name
        write_atomically(path, f'#!/bin/sh\nexec "{sys.executable}" "{STARTED / script}" "$@"\n')
        path.chmod(0o700)
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "PATH": os.pathsep.join([str(shims), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        **more,
    }


class Child:
    """A process of Flower that ends when this one does."""

    def __init__(self, which: str, arguments: Sequence[str], env: Mapping[str, str], logs: Path, idle: float) -> None:
        command = [sys.executable, str(STARTED / "flower.py"), which, str(idle), *arguments]
        with logs.open("ab") as out:
            self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait()

    def stop(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def superlink(home: Path, host: str, port: int, certificates: Path, **more: str) -> Child:
    """A SuperLink with TLS that takes registered keys only."""
    arguments = ["--host", host, "--port", str(port)]
    arguments += ["--ssl-ca-certfile", str(certificates / CA), "--ssl-certfile", str(certificates / CERTIFICATE)]
    arguments += ["--ssl-keyfile", str(certificates / KEY), "--enable-supernode-auth"]
    arguments += ["--disable-runtime-dependency-installation", "--database", str(home / "superlink.db")]
    return Child(
        "superlink",
        arguments,
        environment(home, {"flwr-serverapp": "serverapp.py"}, **more),
        home / "superlink.log",
        IDLE,
    )


def supernode(home: Path, address: str, ca: Path, key: Path, client_socket: Path, idle: float) -> Child:
    """A SuperNode that hands its messages to the socket."""
    arguments = ["--superlink", address, "--root-certificates", str(ca)]
    arguments += ["--auth-supernode-private-key", str(key), "--host", "127.0.0.1", "--port", str(free_port())]
    env = environment(
        home, {"flower-superexec": "executor.py"}, SPARSONA_SOCKET=str(client_socket), SPARSONA_IDLE=str(idle)
    )
    return Child("supernode", arguments, env, home / "supernode.log", idle)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_open(host: str, port: int, child: Child, seconds: float = 60.0) -> None:
    """Wait until a child listens."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if child.ended is not None:
            raise RunError(f"flower-superlink ended with {child.ended}: its log says why")
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.2)
    raise RunError(f"nothing listens at {host}:{port} after {seconds:.0f} s: look into the log of flower-superlink")


class Flwr:
    """The `flwr` command for one SuperLink."""

    def __init__(self, home: Path, address: str, ca: Path) -> None:
        self._env = environment(home, {})
        lines = [
            "[superlink]",
            f'default = "{CONNECTION}"',
            f"[superlink.{CONNECTION}]",
            f"address = {json.dumps(address)}",
            f"root-certificates = {json.dumps(str(ca.resolve()))}",
        ]
        write_atomically(home / "config.toml", "\n".join(lines) + "\n")

    def register(self, public_key: Path) -> int:
        """Register a node's public key; returns the node's number."""
        found = self._json("supernode", "register", str(public_key), CONNECTION, "--format", "json")
        return int(found["node-id"])

    def nodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json("supernode", "list", CONNECTION, "--format", "json").get("nodes", [])
        return found

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json("list", CONNECTION, "--format", "json").get("runs", [])
        return found

    def run(self, app: Path) -> subprocess.Popen[str]:
        """Submit an app and stream its log."""
        command = [sys.executable, "-c", "from flwr.cli.app import app; app()", "run", str(app), CONNECTION, "--stream"]
        return subprocess.Popen(
            command,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _json(self, *arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-c", "from flwr.cli.app import app; app()", *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=120)
        start = done.stdout.find("{")
        try:
            found: dict[str, Any] = json.loads(done.stdout[start:]) if start >= 0 else {}
        except ValueError:
            found = {}
        if done.returncode or not found or found.get("success") is False:
            problem = found.get("error-message") or (done.stderr or done.stdout).strip()[-500:]
            raise RunError(f"flwr {arguments[0]} {arguments[1] if len(arguments) > 1 else ''} failed: {problem}")
        return found
