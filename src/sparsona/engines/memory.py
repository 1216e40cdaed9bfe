"""How the C library of this process gives memory back."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
LARGEST = 2**26
"""Bytes. Arrays up to this size are taken from memory that the process keeps."""

KEPT = 2**28
"""Bytes that are kept at most when nothing uses them."""


def keep_freed_memory() -> bool:
    """Keep memory that is freed for the next array, instead of asking the kernel for new pages every time.

    A frame of a tiny model is just above the size from which glibc asks the kernel: filling new pages takes longer
    than everything else that the server does with the frame. False where this is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return bool(set_option(_MMAP_THRESHOLD, LARGEST) and set_option(_TRIM_THRESHOLD, KEPT))
