"""Shared by all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings

from sparsona.training.determinism import deterministic

collect_ignore_glob = ["conftest.py", "*/conftest.py"]
"""Shared fixtures of a folder are loaded, not collected: all of them have the same name."""

os.environ.setdefault("COLUMNS", "120")
settings.register_profile("suite", deadline=None)  # how long an example takes depends on who else uses the machine
settings.load_profile("suite")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the suite in the background ignores it


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are no name: one made of an archive is another one a second later, in another worker."""
    return argname if isinstance(val, (bytes, bytearray)) else None


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests run beside each other: one torch thread each, and modules made by a test start from the same weights."""
    torch.manual_seed(0)
    with deterministic():
        yield


@pytest.fixture(scope="session")
def nodes() -> Iterator[Any]:
    """Three nodes of a Ray cluster on loopback, which take some seconds to start."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'sparsona[ray]', or make test-cluster")
    from ray_nodes import Nodes

    made = Nodes()
    yield made
    made.close()
