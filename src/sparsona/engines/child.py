"""A child process that ends with this one, however this one ends; and how both treat freed memory."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from sparsona.errors import InputError

POSIX = hasattr(os, "fork")
"""True if this system can start children: Windows has no signal that ends them with their parent."""

BOOT = """
import fcntl, importlib, json, os, select, sys
pipe = int(sys.argv[4])
fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
if select.select([pipe], [], [], 0)[0]:
    sys.exit(1)
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).main(*map(int, sys.argv[3:]))
"""
"""The program of a child. Importing torch takes seconds, in which no Python thread may run. If the parent dies
meanwhile, its end of the pipe closes, and the kernel sends SIGIO, which ends the child."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Tensors of megabytes come and go with every batch: glibc shall keep their memory instead of asking for new pages.
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
}


class ChildProcess:
    """The parent's side: a process that runs ``main`` of a module, and the connection to it.

    ``main`` is called with the handles of the connection, of the pipe for :func:`end_with_parent`, and with `handles`,
    which the caller still owns.
    """

    def __init__(self, module: str, handles: Sequence[int] = ()) -> None:
        check_system()
        with ExitStack() as opened, ExitStack() as passed:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            passed.callback(theirs.close)
            read_end, self._pipe = os.pipe()
            opened.callback(os.close, self._pipe)
            passed.callback(os.close, read_end)
            given = [theirs.fileno(), read_end, *handles]
            paths = json.dumps([str(place) for place in sys.path])
            # The child has its own process group: Ctrl-C in the terminal is for the parent.
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, paths, module, *map(str, given)],
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT},
                process_group=0,
            )
            opened.pop_all()
        self.pid = self._process.pid
        self.connection: Connection[Any, Any] = Connection(ours.detach())

    def end(self, kill: bool = True) -> str:
        """Close the connection, kill the process or let it end, and return how it ended."""
        if kill:
            self._process.kill()
        self.connection.close()
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        os.close(self._pipe)
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def check_system() -> None:
    """Raise `InputError` on systems that cannot start children."""
    if not POSIX:
        raise InputError("worker processes need Linux or macOS: choose --engine inprocess")


def end_with_parent(pipe: int, clean_up: Callable[[], None] = lambda: None) -> None:
    """End this child when its parent ends, however it ends. Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import fcntl  # POSIX only, as children are

    fcntl.fcntl(pipe, fcntl.F_SETFL, 0)  # no more SIGIO: from here on a thread waits for the parent's end
    threading.Thread(target=_wait, args=(pipe, clean_up), daemon=True).start()


def _wait(pipe: int, clean_up: Callable[[], None]) -> None:
    os.read(pipe, 1)  # nothing is ever written to it: it ends with the parent
    clean_up()
    os._exit(1)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
LARGEST = 2**26  # largest array in bytes that is taken from memory which the process keeps
KEPT = 2**28  # largest amount of unused memory that is kept, in bytes


def keep_freed_memory() -> bool:
    """Keep freed memory for the next array, instead of requesting new pages from the kernel each time.

    A frame of a tiny model is just above the size from which glibc asks the kernel. Filling new pages takes longer than
    everything else that the server does with the frame. Returns False without glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return bool(set_option(_MMAP_THRESHOLD, LARGEST) and set_option(_TRIM_THRESHOLD, KEPT))
