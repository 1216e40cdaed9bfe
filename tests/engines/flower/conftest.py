from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore = ["hostile"]
"""Scripts that nodes are started with; doctests would import them."""
