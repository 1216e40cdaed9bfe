"""A node's stub that sends a second, other reply to every message that is answered by a frame."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import sparsona.engines.flower.started

sys.path.insert(0, str(Path(sparsona.engines.flower.started.__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import executor
from flower_helpers import WEIGHTS, frame
from flwr.app import Message
from sparsona_records import from_record, to_record

pull, push = executor.pull_task_input, executor.push_message
asked: list[Any] = []


def pull_task_input(client: Any) -> Any:
    found = pull(client)
    asked.append(found[0])
    return found


def push_message(client: Any, reply: Any, context: Any) -> None:
    head, _ = from_record(reply.content)
    push(client, reply, context)
    order, _ = from_record(asked[-1].content)
    if head["kind"] == "turn" and order["job"] == "fit":
        other = frame(0.5, WEIGHTS, order["round"])
        head = {**head, "ledger": [0, 0, len(other), 0.0, 0, 0]}
        print("a second reply is sent", flush=True)
        push(client, Message(to_record(head, other), reply_to=asked[-1]), context)
        print("a second reply was taken", flush=True)


if __name__ == "__main__":
    executor.pull_task_input, executor.push_message = pull_task_input, push_message
    executor.main()
