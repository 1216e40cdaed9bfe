from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "hostile")]

collect_ignore = ["hostile"]
"""Scripts that nodes are started with; doctests would import them."""
