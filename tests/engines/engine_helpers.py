"""What the tests of the engines share: methods with bad habits, and a short run of the server's loop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sparsona.chance import Chance
from sparsona.engines import Engine
from sparsona.errors import InputError, WireError
from sparsona.federation.evaluation import EVERY_ROUND, Evaluation
from sparsona.federation.rounds import assemble
from sparsona.federation.schedule import Plan, Schedule
from sparsona.federation.setup import Setup
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.runs.records import RoundReport
from sparsona.runs.state import digest
from sparsona.testing import tiny_setup
from sparsona.training.local import Local as Client
from sparsona.training.vector import FlatModule


@dataclass(frozen=True)
class Half:
    """The first half of the clients in even rounds, the second in odd ones."""

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        names = sorted(idle)
        return Plan(tuple(names[round % 2 :: 2]))


@dataclass(frozen=True)
class ButOne:
    """All clients but one, each time another."""

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        names = sorted(idle)
        return Plan(tuple(name for name in names if name != names[round % len(names)]))


@dataclass(frozen=True)
class Memory:
    weights: Vector
    turns: int


@dataclass(frozen=True)
class Stateful(Method[Memory, Memory]):
    """The server sends its model, a client keeps its own; what `trouble` names happens in the turn of client c1, except
    that all turns are slow, or held until the file `flag` is there."""

    trouble: str = ""
    flag: str = ""

    def start_server(self, task: Task) -> Memory:
        return Memory(task.initial, 0)

    def start_client(self, task: Task, client: ClientId) -> Memory:
        return Memory(task.initial, 0)

    def send(self, server: Memory, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, client: Memory, down: Message, local: Client) -> Fit[Memory]:
        if local.client == "c1":
            self._misbehave()
        if self.trouble == "slow":
            time.sleep(0.2)
        if self.trouble == "held":
            _await(Path(self.flag))
        start = (client.weights + down.vector("weights")) / np.float32(2)
        trained = local.train(start).weights
        reply = Message(weights=trained, examples=local.examples)
        return Fit(Memory(trained, client.turns + 1), reply, trained)

    def aggregate(self, server: Memory, arrivals: Sequence[Arrival], context: ServerContext) -> Memory:
        total = np.zeros(context.task.layout.size, np.float64)
        for arrival in arrivals:
            total += arrival.message.vector("weights")
        return Memory((total / len(arrivals)).astype(np.float32), server.turns + len(arrivals))

    def personal_model(self, client: Memory, down: Message, local: Client) -> Vector:
        return client.weights

    def _misbehave(self) -> None:
        if self.trouble == "die once" and not Path(self.flag).exists():
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trouble == "die":
            os._exit(3)
        if self.trouble == "input":
            raise InputError("this is not possible")
        if self.trouble == "wire":
            raise WireError("these are no bytes of ours")
        if self.trouble == "crash":
            raise ZeroDivisionError("by nought")
        if self.trouble == "odd":
            raise Odd(1, 2)


def _await(file: Path, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.02)


class Odd(Exception):
    """An error that pickle cannot rebuild."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def perceptron_setup(method: Method[Any, Any], clients: int = 5, module: nn.Module | None = None) -> Setup:
    """The tiny federation with a perceptron, which the fused trainer takes."""
    setup = tiny_setup(method, clients=clients)
    if module is None:
        torch.manual_seed(3)
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, 9), nn.ReLU(), nn.Linear(9, 4))
    flat = FlatModule(module)
    return replace(setup, module=module, task=replace(setup.task, layout=flat.layout, initial=flat.read()))


@dataclass(frozen=True)
class Run:
    """All that a run leaves behind."""

    server: str
    clients: dict[ClientId, str]
    rounds: tuple[RoundReport, ...]
    models: dict[ClientId, Any]


def run(engine: Engine, setup: Setup, schedule: Schedule | None = None, evaluation: Evaluation = EVERY_ROUND) -> Run:
    loop = assemble(setup, engine, schedule or Half(), evaluation)
    loop.run()
    models = {o.client: o.model for o in loop.finish("personal", setup.task.clients)}
    digests = engine.store.digests(setup.task.clients)
    engine.close()
    return Run(digest(loop.server), digests, tuple(loop.run_log.rounds), dict(sorted(models.items())))


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
