from __future__ import annotations

collect_ignore = ["hostile"]
"""Scripts that nodes are started with; doctests would import them."""
