"""Shared by all tests of the papers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparsona.training.determinism import deterministic

collect_ignore_glob = ["conftest.py"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests run beside each other: one torch thread each."""
    with deterministic():
        yield
