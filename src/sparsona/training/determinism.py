"""The torch settings with which a run gives the same bits on every machine of one kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

if hasattr(os, "register_at_fork"):  # not on Windows
    # A forked child has the parent's OpenMP team without its threads: the first parallel sum would wait for them.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def make_deterministic() -> None:
    """Use one torch thread, so that sums have one order whatever the cores, and choose no kernel by timing."""
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False


@contextmanager
def deterministic() -> Iterator[None]:
    """Be deterministic inside the block; the caller's settings are restored at its end."""
    cudnn = torch.backends.cudnn
    threads, fixed, timed = torch.get_num_threads(), cudnn.deterministic, cudnn.benchmark
    make_deterministic()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.deterministic, cudnn.benchmark = fixed, timed
