"""Functions that differ between operating systems: locks, signals, cores and memory of a process.

POSIX has :mod:`fcntl` and :mod:`resource`, Windows has neither. They are imported where they are used, so that
``import sparsona`` works everywhere.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType


def take_lock(path: Path) -> ExitStack:
    """Lock a file, which is made if it is not there, or a folder; closing the result frees it.

    The system frees the lock when the process ends, in whatever way, so no lock is ever stale. Raises
    `BlockingIOError` if another process has the lock, and `OSError` if the file system has no locks.
    """
    with ExitStack() as opened:
        try:
            import fcntl
        except ImportError:
            from filelock import FileLock, Timeout

            beside = path.resolve().with_name(f"{path.resolve().name}.lock")
            lock = FileLock(beside if path.is_dir() else path, timeout=0)
            try:
                lock.acquire()
            except Timeout:
                raise BlockingIOError(f"{path} is locked") from None
            opened.callback(lock.release)
        else:
            handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
            opened.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return opened.pop_all()


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_rss_kb(children: bool = False) -> int:
    """The most memory in kB that this process, or one of its ended children, has held; 0 where it is not known."""
    try:
        import resource
    except ImportError:
        return 0
    held = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF).ru_maxrss
    return held // 1024 if sys.platform == "darwin" else held  # macOS counts bytes


def free_memory() -> int:
    """Return the bytes that a process can still take without swapping; if unknown, the largest possible number."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = {line.partition(":")[0]: line.split()[1] for line in file}
        return int(found["MemAvailable"]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return sys.maxsize


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Within this block SIGTERM raises KeyboardInterrupt, so that a run is closed and can be resumed.

    Systems send SIGTERM before they end a process.
    A handler of the caller's own stays, and so does everything in a thread, where Python allows no handlers.
    """
    default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not default or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class StopRequest:
    """Within the block the first Ctrl-C sets `asked`, and the next raises KeyboardInterrupt.

    If not `wanted`, or outside the main thread, the first one raises.
    """

    def __init__(self, wanted: bool) -> None:
        self.asked = False
        self._wanted = wanted and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> StopRequest:
        if self._wanted:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
