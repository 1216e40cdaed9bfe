"""A node's stub that can send a second, other reply to every message that is answered by a frame."""

from __future__ import annotations

from typing import Any

import executor
from flwr.app import Message
from mood import TWICE, mood, second_reply
from sparsona_records import from_record, to_record

pull, push = executor.pull_task_input, executor.push_message
asked: list[Any] = []


def pull_task_input(client: Any) -> Any:
    found = pull(client)
    asked[:] = [found[0]]
    return found


def push_message(client: Any, reply: Any, context: Any) -> None:
    push(client, reply, context)
    head, _ = from_record(reply.content)
    order, _ = from_record(asked[0].content)
    if mood() == TWICE and head["kind"] == "turn" and order["job"] == "fit":
        other = second_reply().read_bytes()
        head = {**head, "ledger": [0, 0, len(other), 0.0, 0, 0]}
        print("a second reply is sent", flush=True)
        push(client, Message(to_record(head, other), reply_to=asked[0]), context)


if __name__ == "__main__":
    executor.pull_task_input, executor.push_message = pull_task_input, push_message
    executor.main()
