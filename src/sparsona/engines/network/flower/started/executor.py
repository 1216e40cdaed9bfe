"""The executor that a SuperNode starts on an owner's machine: it passes messages to the owner's process, and back.

It replaces `flower-superexec`, which would start a new process for each message and run the code of the downloaded
bundle. Here the bundle is neither unpacked nor run: the only code is that of the installed packages, without sparsona
and torch. The owner's process decides whether a message is accepted.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.runtime.tracing import RuntimeTracingInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output
from sparsona_pauses import Backoff
from sparsona_records import BadParcel, Incoming, from_record, to_record, write

PATIENCE = 30.0  # seconds that a restarted owner's process may take to listen again
STUCK = 30.0
"""Seconds. After a crash of the SuperLink, a SuperNode may name a message that it does not have, and never will."""
SOON, LATER = 0.05, 0.5
"""Seconds between two requests for a message: after a message, and at most. The SuperNode is on the same machine."""
WATCH = 0.3  # seconds between two checks whether the parent is alive
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
MOST = 2**40  # Largest answer in bytes. It comes from the owner's own process.


def connect(address: str, *more: Any) -> RuntimeHttpClient:
    """Return a client of the SuperNode on this machine."""
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeTracingInterceptor(), RuntimeVersionHttpInterceptor(component_name="SuperExec"), *more],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def signed_by(token: Path) -> SuperExecAuthHttpInterceptor:
    """Return the interceptor that signs requests for a task: the SuperNode answers no others."""
    return SuperExecAuthHttpInterceptor(master_secret=token.read_bytes(), protected_methods=[ACQUIRE])


def carry_out(address: str, token: str, pulled: threading.Event) -> None:
    """Carry out one task of the SuperNode: one message, one answer. `pulled` is set when the message is here."""
    client = connect(address, RuntimeTokenHttpInterceptor(token))
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    context, status, why = None, SubStatus.FAILED, ""
    try:
        message, context, _, _ = pull_task_input(client)
        pulled.set()
        try:
            reply = Message(to_record(*handed_over(message)), reply_to=message)
            status = SubStatus.COMPLETED
        except Exception as error:  # noqa: BLE001
            why = f"{type(error).__name__}: {error}"
            reply = Message(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=why), reply_to=message)
        push_message(client, reply, context)
    except Exception as error:  # noqa: BLE001
        print(f"a message was not carried out: {type(error).__name__}: {error}", flush=True)
    finally:
        pulled.set()
        push_task_output(client, context, status, why)
        heartbeat.stop()
        client.close()


def handed_over(message: Message) -> tuple[dict[str, Any], bytes]:
    """Pass a message to the owner's process; return its answer."""
    try:
        head, body = from_record(message.content)
    except BadParcel as error:
        return {"kind": "error", "why": str(error)}, b""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
                stream.connect(os.environ["SPARSONA_SOCKET"])
                write(stream, head, body)
                answer = Incoming(stream)
                return answer.head, answer.body(MOST)
        except OSError as error:
            if time.monotonic() > until:
                return {"kind": "away", "why": f"the owner's process does not answer ({error})"}, b""
            time.sleep(0.5)


def end_with(parent: int) -> None:
    """End this process when its parent has ended, even if other threads are waiting."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime-api-address", required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    given, _ = parser.parse_known_args()
    threading.Thread(target=end_with, args=(given.parent_pid,), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: os._exit(0))
    pauses = Backoff(SOON, LATER)
    client = connect(given.runtime_api_address, signed_by(Path(os.environ["SPARSONA_TOKEN"])))
    while True:
        found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if not found.HasField("task") or not found.token:
            time.sleep(pauses.next())
            continue
        pauses.restart()
        pulled = threading.Event()
        task = threading.Thread(target=carry_out, args=(given.runtime_api_address, found.token, pulled), daemon=True)
        task.start()
        if pulled.wait(STUCK):
            task.join()
        else:
            print("a message does not arrive: it is left to itself", flush=True)


if __name__ == "__main__":
    main()
