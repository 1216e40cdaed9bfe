"""flower-superlink, from the installed package and not from whatever is on the path."""

from __future__ import annotations

from flwr.superlink.cli import flower_superlink

if __name__ == "__main__":
    flower_superlink()
