"""SuperLink and SuperNode as child processes, and the `flwr` command."""

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

import tomli_w

from sparsona.engines.network.flower.private import need_flwr
from sparsona.engines.network.keys import CA, CERTIFICATE, KEY
from sparsona.errors import RunError
from sparsona.files import write_atomically, write_new
from sparsona.version import __version__

STARTED = Path(__file__).parent / "started"
SUPERLINK, SUPERNODE = STARTED / "superlink.py", STARTED / "supernode.py"
AS_JSON = ("--format", "json")
END = "\0"  # the line between the outputs of two commands of `started/commands.py`
CONNECTION = "sparsona"
SUPERNODE_LOG = "supernode.log"
SUBMITTED, LOG_BEGINS = "Successfully started run ", "Starting logstream"
"""Flower's words before the number of a run, and before its log."""
COLOUR = re.compile("\x1b\\[[0-9;]*m")
PROBLEM = "sparsona: "
"""Beginning of the line in which a run says why it cannot continue. Flower's lines after it are not shown."""
ENDED = ("finished", "unknown")  # beginnings of the status of a run that is over, or that the SuperLink does not know
COMPLETED = "completed"  # part of the status of a run that ended well
AGAIN = 1.0  # seconds before a log is asked for again
STOPPING = 12.0  # seconds after which a child that has not ended is killed


def environment(home: Path, stands_in: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return the environment of Flower's processes, without telemetry. `stands_in` maps its commands to our scripts."""
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


class Child(subprocess.Popen[bytes]):
    """A script in its own process, which ends with this one. Ctrl-C reaches only this process."""

    def __init__(self, script: Path, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            command, pipe = command_of(script, arguments), subprocess.PIPE
            super().__init__(command, env=env, stdin=pipe, stdout=out, stderr=out, start_new_session=True)

    @property
    def ended(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self.poll()

    def stop(self) -> None:
        stop_all([self])

    def ask_to_end(self) -> None:
        self.terminate()
        if self.stdin is not None:
            self.stdin.close()

    def make_end(self) -> None:
        """Wait for the end of a process after `ask_to_end`, and kill it after `STOPPING` seconds."""
        try:
            self.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()


def end_like_ctrl_c() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that children are stopped and temporary files removed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def stop_all(children: Iterable[Child]) -> None:
    """End several children at once."""
    several = list(children)
    for child in several:
        child.ask_to_end()
    for child in several:
        child.make_end()


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
    """Start a SuperNode that passes messages to the socket, asks every `idle` seconds, and takes `memory` bytes."""
    arguments = ["--superlink", address, "--root-certificates", str(ca)]
    arguments += ["--auth-supernode-private-key", str(key), "--host", "127.0.0.1", "--port", str(free_port())]
    token = home / "executor.token"
    write_new(token, secrets.token_bytes(32), 0o600)
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
        link = {"address": address, "root-certificates": str(ca.resolve())}
        config = {"superlink": {"default": CONNECTION, CONNECTION: link}}
        write_atomically(home / "config.toml", tomli_w.dumps(config))

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


EMPTY = b'"""Empty: the installed sparsona runs, and no code of a bundle."""\n\napp = None\n'


def write_bundle(folder: Path, experiment: str, name: str, patience: float, fewest: int = 0) -> Path:
    """Write an app folder for `flwr run`; `experiment` is TOML, `name` names the run directory."""
    package = folder / "sparsona_run"
    package.mkdir(parents=True, exist_ok=True)
    about = {"name": "sparsona-run", "version": __version__, "description": "An experiment for sparsona"}
    apps = {"serverapp": "sparsona_run.server_app:app", "clientapp": "sparsona_run.client_app:app"}
    config = {"experiment": experiment, "name": name, "patience": float(patience), "fewest": fewest}
    settings = {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {**about, "license": "Apache-2.0", "dependencies": []},
        "tool": {"flwr": {"app": {"publisher": "sparsona", "components": apps, "config": config}}},
    }
    write_new(folder / "pyproject.toml", tomli_w.dumps(settings).encode())
    write_new(package / "__init__.py", b"")
    for file in ("server_app.py", "client_app.py"):
        write_new(package / file, EMPTY)
    return folder
