"""Shared by all tests of the papers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

collect_ignore_glob = ["conftest.py"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests run beside each other: one torch thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
