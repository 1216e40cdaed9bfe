"""Settings of the C library for freed memory."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
LARGEST = 2**26
"""Largest array in bytes that is taken from memory which the process keeps."""

KEPT = 2**28
"""Largest amount of unused memory that is kept, in bytes."""


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
