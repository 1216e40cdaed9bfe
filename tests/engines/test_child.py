"""Memory that is freed is kept for the next array."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparsona.engines.child import keep_freed_memory

PROGRAM = """
import resource
import numpy as np
from sparsona.engines.child import keep_freed_memory
{call}
for _ in range(3):
    np.ones(2**21)  # the process reaches its size
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(2**21)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed_memory() or not Path("/proc").exists(), reason="needs glibc")
def test_arrays_take_the_pages_of_those_before_them() -> None:
    assert faults("keep_freed_memory()") < 1000  # 20 arrays of 4,096 pages
