"""`sparsona node` of an owner who is honest, who lies, or whose stub answers every message twice."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from flower_helpers import SPOILED, WEIGHTS, frame, spoiled
from lies import LIES, OF_TABLES, kind_of
from mood import SPOILING, TWICE, mood, second_reply

from sparsona.cli import main
from sparsona.engines.network import node
from sparsona.engines.network.carrier import Answer, Body
from sparsona.engines.network.flower import processes
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.node import Node

honest = processes.environment
KNOWN = {**LIES, **OF_TABLES}


class MoodyNode(Node):
    """Lies as its mood says: a lie of the table, or while it is spoiling another one in each round."""

    def answer(self, head: Head, body: Body) -> Answer:
        reply, data = super().answer(head, body)
        at = mood()
        lie = KNOWN.get(at)
        if lie is not None and lie.to == kind_of(head):
            while lie.change is None and mood() == at:
                time.sleep(0.05)
            return (reply, data) if lie.change is None else lie.change(head, reply, data)
        if reply["kind"] != "turn" or head["job"] != "fit":
            return reply, data
        if at == TWICE:
            second_reply().write_bytes(frame(0.5, WEIGHTS, head["round"]))
        if at == SPOILING and head["round"] < len(SPOILED):
            return spoiled(list(SPOILED)[head["round"]], reply, data, head["round"])
        return reply, data


def environment(home: Path, stands_in: Mapping[str, str], **more: str) -> dict[str, str]:
    """With another stub, which finds the honest one's modules and the helpers of the tests."""
    shim = {name: str(Path(__file__).with_name("moody_executor.py")) for name in stands_in}
    found = [str(processes.STARTED), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return honest(home, shim, **more, PYTHONPATH=os.pathsep.join(filter(None, found)))


if __name__ == "__main__":
    setattr(node, Node.__name__, MoodyNode)  # under the name by which the owner's process starts it
    processes.environment = environment
    main()
