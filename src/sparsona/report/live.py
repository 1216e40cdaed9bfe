"""The page of `sparsona watch`, by Python's own HTTP server and server-sent events. Files are read, never written."""

import json
import math
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sparsona.errors import InputError, SparsonaError, printable
from sparsona.experiment import read
from sparsona.metrics import in_percent
from sparsona.report.html import asset
from sparsona.runs.about import FILE as ABOUT
from sparsona.runs.about import read_about
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord

CLIENTS = 200
"""The page lists at most this many clients of a run; those that failed come first."""
LINES = 40
"""The page shows this many of the newest lines of a node's log."""
SILENT = 60.0
"""A run counts as silent after this many seconds without a new round, and after ten times its usual round."""
TURN = re.compile(r"round (\d+): received (\d+) bytes .*sent (\d+) bytes")
"""The line that a node logs after each of its turns."""
SPENT = "privacy: "
"""The beginning of a log line that says how much of the owner's privacy budget is spent."""


class AppendedLines:
    """The complete lines that were appended to a file since the last look; a shorter file is read from its start."""

    def __init__(self, file: Path) -> None:
        self.file, self._at = file, 0

    def shrank(self) -> bool:
        """True if the file is shorter than the part already read; the next look then starts at its first line."""
        if not self.file.exists() or self.file.stat().st_size >= self._at:
            return False
        self._at = 0
        return True

    def lines(self) -> list[str]:
        """Return the new lines. An incomplete last line is left for the next look."""
        if not self.file.is_file():
            return []
        with self.file.open("rb") as opened:
            opened.seek(self._at)
            found = opened.read()
        whole = found[: found.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode("utf-8", "replace").splitlines()


@dataclass
class LiveClient:
    """One client's progress. `failures` counts rounds in which its reply was refused, late or lost."""

    up: int = 0
    down: int = 0
    score: float | None = None
    round: int = 0
    state: str = "not asked yet"
    why: str = ""
    failures: int = 0

    def add(self, line: ClientRecord) -> None:
        """Add the record of one round."""
        self.up += line.up.total
        self.down += line.down.total
        if math.isfinite(score := line.test.get("pre", math.nan)):
            self.score = score
        if not (line.took_part or line.refused):
            return
        self.round = line.round
        self.state = "refused" if line.refused else "answered" if line.arrived else "late or lost"
        self.why = printable(line.refused, 300)
        self.failures += self.state != "answered"


@dataclass
class LiveRun:
    """One run directory; each look continues after the last one."""

    folder: Path
    name: str
    clients: dict[str, LiveClient] = field(default_factory=dict)
    scores: dict[int, list[float]] = field(default_factory=dict)
    spent: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._directory = RunDirectory(self.folder)
        self._tail = AppendedLines(self._directory.records)

    def look(self) -> dict[str, Any]:
        """Return the current state of the run."""
        if self._tail.shrank():  # a resumed run drops the lines behind its last checkpoint
            self.clients, self.scores, self.spent = {}, {}, {}
        for line in map(ClientRecord.parse, self._tail.lines()):
            self.clients.setdefault(line.client, LiveClient()).add(line)
            if math.isfinite(score := line.test.get("pre", math.nan)):
                self.scores.setdefault(line.round, []).append(score)
            self.spent[line.round] = self.spent.get(line.round, 0) + line.up.total + line.down.total
        settings = read(self._directory.experiment_file)
        about = read_about(self.folder) if (self.folder / ABOUT).exists() else None
        for client in about.clients if about else ():
            self.clients.setdefault(client, LiveClient())
        finished = self._directory.summary_file.exists()
        progress = Checkpointer(self._directory.checkpoint).progress()
        rounds, done = int(settings["rounds"]), max([progress.done, *self.spent])
        pace = progress.seconds / progress.done if progress.done else None
        seconds, left = progress.seconds, pace and pace * (rounds - done)
        files = [self._directory.records, self._directory.experiment_file]
        age = time.time() - max(file.stat().st_mtime for file in files if file.exists())
        state = "finished" if finished else "running" if age < max(SILENT, 10 * (pace or 0)) else "silent"
        summary: Mapping[str, Any] = {}
        if finished:
            summary = self._directory.summary()
            rounds, seconds, left = int(summary["rounds"]), float(summary["seconds"]), 0.0
            done = rounds
        metric = about.metric if about else ""
        everyone = max(map(len, self.scores.values()), default=0)
        curve = {number: own for number, own in self.scores.items() if len(own) == everyone}
        failed_first = sorted(self.clients.items(), key=lambda item: item[1].state in ("answered", "not asked yet"))
        return {
            "name": self.name,
            "method": str(settings["method"]),
            "state": state,
            "age": round(age) if state == "silent" else 0,
            "round": done,
            "rounds": rounds,
            "seconds": round(seconds, 1),
            "left": None if left is None else round(left, 1),
            "metric": metric,
            "percent": in_percent(metric),
            "privacy": _privacy(settings, summary),
            "curve": {"round": list(curve), "score": [sum(own) / len(own) for own in curve.values()]},
            "bytes": {"round": list(self.spent), "total": list(self.spent.values())},
            "up": sum(client.up for client in self.clients.values()),
            "down": sum(client.down for client in self.clients.values()),
            "count": len(self.clients),
            "clients": [{"id": printable(name, 80), **vars(one)} for name, one in failed_first[:CLIENTS]],
        }


class LiveNode:
    """An owner's node by its log: the received bytes, the sent bytes, and its newest lines."""

    def __init__(self, folder: Path) -> None:
        self._tail = AppendedLines(folder / "node.log")
        self._last: deque[str] = deque(maxlen=LINES)
        self._turns: list[tuple[int, int, int]] = []
        self._privacy = ""

    def look(self) -> dict[str, Any] | None:
        """Return the current state of the node; None if the folder has no node log."""
        if not self._tail.file.exists():
            return None
        if self._tail.shrank():
            self._last.clear()
            self._turns.clear()
            self._privacy = ""
        for line in self._tail.lines():
            self._last.append(printable(line, 500))
            if turn := TURN.search(line):
                self._turns.append((int(turn[1]), int(turn[2]), int(turn[3])))
            _, said, spent = line.partition(SPENT)
            self._privacy = printable(spent, 200) if said else self._privacy
        return {
            "turns": len(self._turns),
            "round": self._turns[-1][0] if self._turns else 0,
            "received": sum(turn[1] for turn in self._turns),
            "sent": sum(turn[2] for turn in self._turns),
            "privacy": self._privacy,
            "lines": list(self._last),
        }


class LiveFolder:
    """A run, or all runs below a folder: a comparison, a sweep, a server's home, or a node's state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[Path, LiveRun] = {}
        self._node = LiveNode(folder)

    def look(self) -> dict[str, Any]:
        """Return everything that the page shows. A run with unreadable files is named with the reason."""
        runs, problems = [], []
        for file in self._found():
            name = str(file.parent.relative_to(self.folder)) if file.parent != self.folder else file.parent.name
            one = self._runs.setdefault(file.parent, LiveRun(file.parent, printable(name, 80)))
            try:
                runs.append(one.look())
            except (SparsonaError, OSError, ValueError, KeyError, TypeError) as error:
                problems.append(f"{one.name}: {printable(error, 300)}")
        return {
            "folder": printable(self.folder.resolve().name, 120),
            "runs": runs,
            "planned": max(_planned(self.folder), len(runs)),
            "node": self._node.look(),
            "problems": problems,
        }

    def _found(self) -> list[Path]:
        """Return the experiment files of runs. A node's memory of a run has no records and is left out."""
        own = self.folder / "experiment.toml"
        files = [own] if own.exists() else sorted(self.folder.rglob("experiment.toml"))
        return [
            file
            for file in files
            if RunDirectory(file.parent).checkpoint.exists() and not (file.parent / "agreed").exists()
        ]


def _privacy(settings: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return in words the epsilon that the clients of a finished run have spent, or the budget of a running one."""
    if spent := summary.get("privacy"):
        return f"epsilon {spent['largest']:.2f} spent at delta {spent['delta']:g}"
    budget = settings.get("privacy", {}).get("epsilon")
    return f"at most epsilon {budget:g} by the last round" if budget else ""


def _planned(folder: Path) -> int:
    """Return the planned number of runs of a comparison; 0 if unknown."""
    try:
        study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        return len(study["contenders"]) * len(study["seeds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


PORT = 8321
EVERY = 1.0
"""Seconds between two looks at the files."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "img-src data:; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class WatchServer(ThreadingHTTPServer):
    """Serves the page of one folder. All browsers share one look at the files per second."""

    daemon_threads = True

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._live, self._lock = LiveFolder(folder), threading.Lock()
        self._text, self._until = "", 0.0
        self.closing = threading.Event()
        self.local = host in LOOPBACK
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{self.server_address[0]!s}:{self.server_port}/"

    def state(self) -> str:
        """Return the current state of the page as JSON."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._text = json.dumps(self._live.look(), allow_nan=False)
                self._until = time.monotonic() + EVERY / 2
            return self._text


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        """Answer with the page, one of its scripts, or the stream of states."""
        name = (self.headers.get("Host") or "").rpartition(":")[0].strip("[]")
        if self.server.local and name not in LOOPBACK:  # another site that resolves its name to this machine
            self.send_error(403)
        elif self.path == "/":
            self._send("text/html", asset("watch.html").replace("<!--STYLE-->", asset("report.css")))
        elif self.path == "/watch.js":
            self._send("text/javascript", asset("watch.js"))
        elif self.path == "/echarts.js":
            self._send("text/javascript", asset("echarts/echarts.min.js"))
        elif self.path == "/events":
            self._stream()
        else:
            self.send_error(404)

    def _head(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        for name, value in HEADERS.items():
            self.send_header(name, value)

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self._head(kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        """Send the state each time it changes, else a comment, so that a closed browser is noticed."""
        self._head("text/event-stream")
        self.end_headers()
        before = ""
        try:
            while not self.server.closing.is_set():
                state = self.server.state()
                self.wfile.write(f"data: {state}\n\n".encode() if state != before else b": the same\n\n")
                self.wfile.flush()
                before = state
                self.server.closing.wait(EVERY)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests: the terminal belongs to the run."""


@contextmanager
def watching(folder: Path, host: str = "127.0.0.1", port: int = PORT) -> Iterator[WatchServer]:
    """Serve the page of a folder while the block lasts. Port 0 takes any free port."""
    try:
        server = WatchServer(folder, host, port)
    except OSError as error:
        raise InputError(f"cannot listen at {host}:{port} ({error.strerror}): choose another --port") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
