"""SuperLink and SuperNode as child processes, and the `flwr` command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsona.engines.network.flower.private import need_flwr
from sparsona.engines.network.keys import CA, CERTIFICATE, KEY
from sparsona.errors import RunError
from sparsona.files import write_atomically, write_private

STARTED = Path(__file__).parent / "started"
SUPERLINK, SUPERNODE = STARTED / "superlink.py", STARTED / "supernode.py"
AS_JSON = ("--format", "json")
END = "\0"
"""The line between the outputs of two commands of `started/commands.py`."""
CONNECTION = "sparsona"
SUPERNODE_LOG = "supernode.log"
SUBMITTED, LOG_BEGINS = "Successfully started run ", "Starting logstream"
"""Flower's words before the number of a run, and before its log."""
COLOUR = re.compile("\x1b\\[[0-9;]*m")
PROBLEM = "sparsona: "
"""Beginning of the line in which a run says why it cannot continue. Flower's lines after it are not shown."""
ENDED = ("finished", "unknown")
"""Beginnings of the status of a run that is over, or that the SuperLink does not know."""
COMPLETED = "completed"
"""Part of the status of a run that ended well."""
AGAIN = 1.0
"""Seconds before a log is asked for again."""
STOPPING = 12.0
"""Seconds after which a child that has not ended is killed."""


def environment(home: Path, stands_in: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return the environment of Flower's processes: no telemetry, all files in `home`.

    `stands_in` maps commands of Flower to the scripts that replace them.
    """
    need_flwr()
    shims = home / "bin"
    shims.mkdir(parents=True, exist_ok=True)
    for name, script in stands_in.items():
        path = shims / name
        write_atomically(path, f'#!/bin/sh\nexec {shlex.join([sys.executable, str(STARTED / script)])} "$@"\n')
        path.chmod(0o700)
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "PATH": os.pathsep.join([str(shims), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        **more,
    }


def command_of(script: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a script in a process which ends when its standard input is closed."""
    return [sys.executable, str(STARTED / "child.py"), str(script), *arguments]


class Child:
    """A script in its own process, which ends with this one. Ctrl-C reaches only this process."""

    def __init__(self, script: Path, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command_of(script, arguments),
                env=env,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait()

    def stop(self) -> None:
        stop_all([self])

    def ask_to_end(self) -> None:
        self._process.terminate()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def make_end(self, seconds: float) -> None:
        """Wait for the end of a process after `ask_to_end`, and kill it after `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def end_like_ctrl_c() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that children are stopped and temporary files removed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def stop_all(children: Iterable[Child]) -> None:
    """End several children at once."""
    several = list(children)
    for child in several:
        child.ask_to_end()
    for child in several:
        child.make_end(STOPPING)


def superlink(home: Path, host: str, port: int, certificates: Path, **more: str) -> Child:
    """Start a SuperLink with TLS that accepts only registered keys."""
    arguments = ["--host", host, "--port", str(port)]
    arguments += ["--ssl-ca-certfile", str(certificates / CA), "--ssl-certfile", str(certificates / CERTIFICATE)]
    arguments += ["--ssl-keyfile", str(certificates / KEY), "--enable-supernode-auth"]
    database = home / "superlink.db"
    if database.exists():
        database.chmod(0o600)
    arguments += ["--disable-runtime-dependency-installation", "--database", str(database)]
    env = environment(home, {"flwr-serverapp": "serverapp.py"}, **more)
    return Child(SUPERLINK, arguments, home / "superlink.log", env)


def supernode(home: Path, address: str, ca: Path, key: Path, client_socket: Path, idle: float, memory: int) -> Child:
    """Start a SuperNode that passes its messages to the socket, and asks for new ones at least every `idle` seconds.

    It takes at most `memory` bytes.
    """
    arguments = ["--superlink", address, "--root-certificates", str(ca)]
    arguments += ["--auth-supernode-private-key", str(key), "--host", "127.0.0.1", "--port", str(free_port())]
    token = home / "executor.token"
    write_private(token, secrets.token_bytes(32))
    more = {"SPARSONA_SOCKET": str(client_socket), "SPARSONA_IDLE": str(idle), "SPARSONA_TOKEN": str(token)}
    more["SPARSONA_MEMORY"] = str(memory)
    env = environment(home, {"flower-superexec": "executor.py"}, **more)
    return Child(SUPERNODE, arguments, home / SUPERNODE_LOG, env)


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
            raise RunError(f"flower-superlink ended with {child.ended}: {child.log} says why")
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.2)
    raise RunError(f"nothing listens at {host}:{port} after {seconds:.0f} s: {child.log} may say why")


class LogRelay:
    """Passes the output of a run on. A log that is sent again from its beginning continues at the first new line.

    A run that cannot continue says why in one line. This line is kept as `problem`, and Flower's traceback after it is
    dropped. A bug of Sparsona has no such line, and its traceback is passed on.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._known = self._count = 0
        self._in_log = False
        self.number, self.last, self.problem = "", "", ""

    def again(self) -> None:
        """Note that the log now starts again from its beginning."""
        self._known, self._count, self._in_log = max(self._known, self._count), 0, False

    def line(self, line: str) -> None:
        line = COLOUR.sub("", line)
        self.last = line or self.last
        if line.startswith(SUBMITTED):
            self.number = line.removeprefix(SUBMITTED).split()[0]
        if self._in_log:
            self._count += 1
        new = self._count > self._known if self._in_log else not self._known
        if self._in_log and new and not self.problem and line.startswith(PROBLEM):
            self.problem = line.removeprefix(PROBLEM)
        self._in_log = self._in_log or LOG_BEGINS in line
        if new and not self.problem:
            self._say(line)


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

    def register(self, public_keys: Sequence[Path]) -> list[int]:
        """Register nodes' public keys; return the nodes' numbers."""
        found = self._ask([["supernode", "register", str(key), CONNECTION, *AS_JSON] for key in public_keys])
        return [int(one["node-id"]) for one in found]

    def unregister(self, nodes: Sequence[int]) -> None:
        self._ask([["supernode", "unregister", str(node), CONNECTION, *AS_JSON] for node in nodes])

    def run(self, app: Path, say: Callable[[str], None]) -> str:
        """Submit an app and pass its log on, line by line; return Flower's status at the end of the run.

        Raises `RunError` with the run's own words if the run says why it cannot continue.

        An interruption ends the watching, not the run. If Flower ends the stream of the log before the run is over, the
        log is requested again, and its known lines are skipped.
        """
        number, heard = "", LogRelay(say)
        command = ["run", str(app), CONNECTION, "--stream"]
        while True:
            found = self._watch(command, heard)
            number = number or heard.number
            status = next((str(run["status"]) for run in found.get("runs", ()) if run["run-id"] == number), "unknown")
            if status.partition(":")[0] in ENDED:
                if heard.problem and COMPLETED not in status:
                    raise RunError(heard.problem)
                return status
            time.sleep(AGAIN)
            heard.again()
            command = ["log", number, CONNECTION, "--stream"]

    def _watch(self, command: Sequence[str], heard: LogRelay) -> dict[str, Any]:
        """Execute a command and pass its output on; return the list of runs after it."""
        process = subprocess.Popen(
            self._command([command, ["list", CONNECTION, *AS_JSON]]),
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            for line in map(str.rstrip, process.stdout):
                if line == END:
                    break
                heard.line(line)
            listed = process.stdout.read().partition(END)[0]
            if process.wait() or not heard.number:
                raise RunError(f"the submission failed: {heard.last}")
        finally:
            process.kill()
            process.wait()
        return _json(listed)

    def _ask(self, commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Return the JSON output of each command; one process executes all."""
        if not commands:
            return []
        seconds = 60.0 + 10.0 * len(commands)
        done = subprocess.run(self._command(commands), env=self._env, capture_output=True, text=True, timeout=seconds)
        found = [_json(text) for text in done.stdout.split(END)[: len(commands)]]
        bad = next((one for one in found if not one.get("success", True)), {})
        if done.returncode or bad or len(found) < len(commands):
            problem = bad.get("error-message") or (done.stderr or done.stdout).strip()[-500:]
            raise RunError(f"flwr {' '.join(commands[0][:2])} failed: {problem}")
        return found

    def _command(self, commands: Sequence[Sequence[str]]) -> list[str]:
        return [sys.executable, str(STARTED / "commands.py"), json.dumps(commands)]


def _json(text: str) -> dict[str, Any]:
    """Return the JSON object at the end of a command's output; empty if there is none."""
    start = text.find("{")
    try:
        found: dict[str, Any] = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return found
