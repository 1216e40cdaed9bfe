"""`sparsona` on a machine without any network: in a network namespace of its own, with no interface up."""

from __future__ import annotations

import ctypes
import os
import socket

from sparsona.cli import main

CLONE_NEWNET = 0x40000000

if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    except OSError as error:
        print(f"alone: {error.strerror}", flush=True)
    main()
