"""The page of `sparsona watch`: Python's own HTTP server and server-sent events. It only reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sparsona.errors import InputError
from sparsona.report.html import asset
from sparsona.report.live import LiveFolder

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
