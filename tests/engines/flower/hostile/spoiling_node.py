"""`sparsona node` of an owner whose replies are spoiled, another way in each round."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from flower_helpers import SPOILED, spoiled

from sparsona.cli import main
from sparsona.engines.flower import owner
from sparsona.engines.flower.node import Answer, Body, Node
from sparsona.engines.flower.started.sparsona_records import Head


class SpoilingNode(Node):
    def answer(self, head: Head, body: Body) -> Answer:
        reply, data = super().answer(head, body)
        if reply["kind"] != "turn" or head["job"] != "fit" or head["round"] >= len(SPOILED):
            return reply, data
        return spoiled(list(SPOILED)[head["round"]], reply, data, head["round"])


if __name__ == "__main__":
    owner.Node = SpoilingNode  # type: ignore[misc]
    main()
