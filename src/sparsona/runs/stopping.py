"""SIGTERM, which systems send before they end a process, as an interruption like Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Within this block SIGTERM raises KeyboardInterrupt, so that a run is closed and can be resumed.

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


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
