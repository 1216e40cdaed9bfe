"""SuperLink and SuperNode as child processes, and the `flwr` command."""

from __future__ import annotations

import contextlib
import json
import os
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
"""What Flower says before the number of a run, and before its log."""
PROBLEM = "sparsona: "
"""How the line begins by which a run says why it cannot go on. What Flower adds to it helps nobody."""
ENDED = ("finished", "unknown")
"""How the status of a run begins that is over, or that the SuperLink does not know."""
COMPLETED = "completed"
"""What is in the status of a run that ended well."""
AGAIN = 1.0
"""Seconds before a log is asked for again."""
STOPPING = 12.0
"""Seconds. A child that has not ended by then is killed."""


def environment(home: Path, stands_in: Mapping[str, str], **more: str) -> dict[str, str]:
    """The environment of Flower's processes: no reports to anybody, all files in `home`.

    `stands_in` names commands of Flower and the scripts that are started in their place.
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
    """The command of a script in a process that ends when its standard input is closed."""
    return [sys.executable, str(STARTED / "child.py"), str(script), *arguments]


class Child:
    """A script in a process of its own, which ends when this one does. Ctrl-C reaches this one alone."""

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
        """The exit code, None while it runs."""
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
        """Wait for the end of a process that was asked to, and kill it after so many seconds."""
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
    """A SuperLink with TLS that takes registered keys only."""
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
    """A SuperNode that hands its messages to the socket, and asks for new ones at least every `idle` seconds.

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
    """Passes the output of a run on. A log that is sent from its beginning again goes on where it broke off.

    A run that cannot go on says why in one line. This is kept as `problem`, and nothing behind it is passed on: it is
    Flower's traceback of the same. A mistake of ours has no such line, and is passed on with its traceback.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._known = self._count = 0
        self._in_log = False
        self.number, self.last, self.problem = "", "", ""

    def again(self) -> None:
        """What comes next is the log from its beginning."""
        self._known, self._count, self._in_log = max(self._known, self._count), 0, False

    def line(self, line: str) -> None:
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
        """Register nodes' public keys; returns the nodes' numbers."""
        found = self._ask([["supernode", "register", str(key), CONNECTION, *AS_JSON] for key in public_keys])
        return [int(one["node-id"]) for one in found]

    def unregister(self, nodes: Sequence[int]) -> None:
        self._ask([["supernode", "unregister", str(node), CONNECTION, *AS_JSON] for node in nodes])

    def run(self, app: Path, say: Callable[[str], None]) -> str:
        """Submit an app and pass its log on, line by line; returns how the run ended, in Flower's words.

        A run that says itself why it cannot go on is an error of these words.

        An interruption ends the watching, not the run. Where Flower ends the stream of the log before the run is over,
        the log is asked for again, and what is known of it is left out.
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
        """Carry out a command and pass on what it says; returns the list of runs after it."""
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
        """What each of some commands prints, all carried out by one process."""
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
    """The JSON object at the end of a command's output; empty where there is none."""
    start = text.find("{")
    try:
        found: dict[str, Any] = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return found
