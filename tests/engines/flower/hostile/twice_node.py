"""`sparsona node` of an owner whose stub answers every message twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparsona.cli import main
from sparsona.engines.flower import processes

honest = processes.environment


def environment(home: Path, stands_in: Mapping[str, str], **more: str) -> dict[str, str]:
    return honest(home, {name: str(Path(__file__).with_name("twice_executor.py")) for name in stands_in}, **more)


if __name__ == "__main__":
    processes.environment = environment
    main()
