"""What the tests of data sets share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparsona import data
from sparsona.data.dataset import Dataset


@pytest.fixture
def real() -> Callable[[str], Dataset]:
    """Loads a published data set, or skips the test where this machine has no copy of it."""

    def load(name: str) -> Dataset:
        if not data.describe(name).present:
            pytest.skip(f"{name} is not on this machine: get it with `sparsona data get {name}`")
        return data.load(name)

    return load
