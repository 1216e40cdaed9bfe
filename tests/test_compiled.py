"""Where numba finds no folder for its cache."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import logging, os, numba.core.caching as caching, {more}
logging.basicConfig()
caching.CacheImpl._locator_classes = [caching.UserProvidedCacheLocator]
os.environ.pop("NUMBA_CACHE_DIR", None)
from sparsona.compiled import compiled
@compiled
def twice(number):
    return 2 * number
print(twice(21), os.environ.get("NUMBA_CACHE_DIR", "none"))
"""


@pytest.mark.parametrize("more", ["sys", "tempfile; tempfile.mkdtemp = lambda **_: open('/nowhere/at/all')"])
def test_without_a_cache_it_works_with_one_warning(more: str) -> None:
    """A temporary folder, which is removed in the end; or none, where even that cannot be made."""
    script = SCRIPT.replace("{more}", more)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, folder = done.stdout.split()
    assert found == "42"
    assert ("sparsona-numba" in folder) == (more == "sys")
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1
