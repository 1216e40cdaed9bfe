"""The server's loop: who is sent what, what arrives when, and that every byte is counted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.experiment import make_method
from sparsona.federation.evaluation import EVERY_ROUND, Evaluation
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import EVERYONE, Plan, Sampled, Schedule
from sparsona.federation.worker import Job, Outcome
from sparsona.message import Message, Part, Vector
from sparsona.method import TRAIN, Arrival, ClientId, Fit, Method, Phase, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.local import LocalOnly
from sparsona.runs.records import ClientRecord, read_records
from sparsona.testing import tiny_setup
from sparsona.training.local import Local
from sparsona.wire import EncodeCache, kinds
from sparsona.wire.buffers import Piece


class Tap(InProcess):
    """Sees what the engine hands over."""

    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.seen: list[tuple[Job, Outcome]] = []

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            (outcome,) = super().run([job])
            self.seen.append((job, outcome))
            yield outcome


def rounds_of(
    method: Method[Any, Any], schedule: Schedule = EVERYONE, evaluation: Evaluation = EVERY_ROUND, rounds: int = 4
) -> tuple[Rounds, Tap, list[ClientRecord]]:
    setup = tiny_setup(method, rounds=rounds)
    engine = Tap(setup)
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records.jsonl"
        loop = assemble(setup, engine, schedule, evaluation, records=records)
        loop.run()
        return loop, engine, read_records(records)


def test_ledger_and_payload_agree_to_the_byte() -> None:
    _, engine, lines = rounds_of(FedAvg(), Sampled(sample=0.5))
    for line in lines:
        fits = [
            (job, outcome)
            for job, outcome in engine.seen
            if job.kind == "fit" and job.client == line.client and job.stamp.round == line.round - 1
        ]
        assert line.down.total == sum(len(b"".join(job.down)) for job, _ in fits)
        assert line.up.total == sum(len(outcome.frame.data) for _, outcome in fits)
    assert sum(line.up.total for line in lines) > 0


def test_evaluating_someone_who_did_not_take_part_is_not_traffic() -> None:
    _, engine, lines = rounds_of(FedAvg(), Sampled(sample=0.4))
    absent = [line for line in lines if not line.took_part]
    assert absent
    assert all(line.down.total == line.up.total == 0 for line in absent)
    assert all({"pre", "post"} <= set(line.test) for line in lines)
    assert {job.kind for job, _ in engine.seen} == {"fit", "trial", "personal"}


@pytest.mark.parametrize("name", METHODS.names())
def test_a_downlink_that_is_the_same_for_many_is_encoded_once(name: str) -> None:
    """Also where the method makes it anew for everyone: no body comes out of the coder twice in a context, except
    against what different clients have."""
    loop, _, _ = rounds_of(make_method(name, {}), rounds=2)
    context, memo = ServerContext(loop.setup.task, 2), EncodeCache()
    bodies: list[tuple[bytes, int]] = []
    encode = kinds.encode

    def counted(part: Part, layout: Any, packing: Any, base: Part | None = None) -> tuple[int, Piece]:
        kind, body = encode(part, layout, packing, base)
        if not isinstance(part, int | float):
            bodies.append((body.data, id(base)))
        return kind, body

    with patch("sparsona.wire.frame.kinds.encode", counted):
        for client in loop.setup.task.clients:
            loop._send((2, 0), context, client, memo)
    assert len(bodies) == len(set(bodies))


def test_local_sends_nothing() -> None:
    _, _, lines = rounds_of(LocalOnly())
    assert all(line.up.total == line.down.total == 0 for line in lines)
    assert all(line.took_part for line in lines)


def test_evaluation_can_be_thinned_but_the_last_round_is_complete() -> None:
    _, engine, lines = rounds_of(FedAvg(), Sampled(sample=0.4), Evaluation(every=3, post="participants"))
    measured = {(line.round, line.client) for line in lines if "pre" in line.test}
    assert {round for round, _ in measured} == {3, 4}
    assert sum("post" in line.test for line in lines if line.round == 3) == 1
    assert sum("post" in line.test for line in lines if line.round == 4) == 3
    assert not any(job.kind == "trial" and job.stamp.round != 3 for job, _ in engine.seen)


def test_a_trial_leaves_no_trace() -> None:
    quiet, _, _ = rounds_of(LocalOnly(), Sampled(sample=0.4), Evaluation(every=0))
    loud, _, _ = rounds_of(LocalOnly(), Sampled(sample=0.4), Evaluation(every=1, ft=True))
    clients = quiet.setup.task.clients
    assert quiet.engine.store.digests(clients) == loud.engine.store.digests(clients)


@dataclass(frozen=True)
class Script:
    """A schedule written down: round -> plan."""

    plans: dict[int, Plan]

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        plan = self.plans.get(round, Plan(()))
        return replace(plan, invited=tuple(k for k in plan.invited if k in idle))


@dataclass(frozen=True)
class Log:
    entries: tuple[tuple[int, str, int], ...] = ()
    unanswered: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class Listener(Method[Log, None]):
    """Remembers who arrived when, and echoes the stamps it saw."""

    def start_server(self, task: Task) -> Log:
        return Log()

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: Log, to: ClientId, context: ServerContext) -> Message:
        return Message(known=len(server.entries))

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        return Fit(None, Message(round=down.round), local.task.initial)

    def aggregate(self, server: Log, arrivals: Sequence[Arrival], context: ServerContext) -> Log:
        entries = tuple((context.round, a.client, a.round) for a in arrivals)
        assert all(a.message.integer("round") == a.round for a in arrivals)
        assert all(a.sent.integer("known") == self._known(server, a.round) for a in arrivals)
        return Log(server.entries + entries, (*server.unanswered, context.unanswered))

    def _known(self, server: Log, round: int) -> int:
        """How many entries there were when the orders of a round went out."""
        return sum(entry[0] < round for entry in server.entries)

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return local.task.initial


def test_a_late_reply_knows_its_round_and_its_sender_is_busy_until_then() -> None:
    everyone = ("c0", "c1", "c2")
    plans = {0: Plan(everyone, delay={"c1": 2}), 1: Plan(everyone), 2: Plan(everyone), 3: Plan(everyone)}
    loop, _, lines = rounds_of(Listener(), Script(plans))
    assert loop.server.entries == (
        (0, "c0", 0), (0, "c2", 0),
        (1, "c0", 1), (1, "c2", 1),
        (2, "c0", 2), (2, "c1", 0), (2, "c2", 2),
        (3, "c0", 3), (3, "c1", 3), (3, "c2", 3),
    )  # fmt: skip
    assert loop.server.unanswered == ({"c1"}, {"c1"}, set(), set())
    assert [line.arrived for line in lines if line.client == "c1" and line.took_part] == [False, True]


def test_the_downlink_acknowledges_what_arrived() -> None:
    one = ("c0",)
    plans = {0: Plan(one), 1: Plan(one, lost=frozenset(one)), 2: Plan(one), 3: Plan(one, crashed=frozenset(one))}
    loop, engine, lines = rounds_of(Listener(), Script(plans))
    stamps = {job.stamp.round: job.stamp.acked for job, _ in engine.seen if job.kind == "fit"}
    assert stamps == {0: None, 1: (0, 0), 2: (0, 0)}
    assert loop.delivery.snapshot().acked == {"c0": (2, 0)}
    crashed = next(line for line in lines if line.round == 4 and line.client == "c0")
    assert crashed.down.total > 0
    assert crashed.up.total == 0
    lost = next(line for line in lines if line.round == 2 and line.client == "c0")
    assert lost.up.total > 0
    assert not lost.arrived


@dataclass(frozen=True)
class Asked:
    sketches: dict[str, int]
    trained: int = 0


@dataclass(frozen=True)
class TwoTurns(Method[Asked, None]):
    """Everyone is asked for a sketch before the first round; then rounds as usual."""

    def phases(self, round: int) -> tuple[Phase, ...]:
        return (Phase("sketch", everyone=True), TRAIN) if round == 0 else (TRAIN,)

    def start_server(self, task: Task) -> Asked:
        return Asked({})

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: Asked, to: ClientId, context: ServerContext) -> Message:
        return Message(asked=len(context.phase.name))

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        if local.phase.name == "sketch":
            return Fit(None, Message(sketch=np.arange(4, dtype=np.float32)), None)
        return Fit(None, Message(examples=local.examples), local.task.initial)

    def aggregate(self, server: Asked, arrivals: Sequence[Arrival], context: ServerContext) -> Asked:
        if context.phase.name == "sketch":
            return Asked({a.client: len(a.message.vector("sketch")) for a in arrivals})
        return replace(server, trained=server.trained + len(arrivals))

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return local.task.initial


def test_an_exchange_is_a_turn_of_the_loop_and_its_bytes_count() -> None:
    loop, _, lines = rounds_of(TwoTurns(), Sampled(sample=0.34))
    assert loop.server == Asked({"c0": 4, "c1": 4, "c2": 4}, 4)
    first = {line.client: line.up.total for line in lines if line.round == 1}
    assert all(first.values()), "everyone answered the sketch"
    assert len(set(first.values())) == 2, "and one of them trained, too"


def test_an_empty_round_is_a_round() -> None:
    loop, _, lines = rounds_of(FedAvg(), Script({1: Plan(("c0",))}), Evaluation(every=0))
    assert loop.done == 4
    assert {line.client for line in lines if line.took_part} == {"c0"}


@pytest.mark.parametrize("method", [FedAvg(), LocalOnly()])
def test_new_clients_adapt(method: Method[Any, Any]) -> None:
    loop, _, _ = rounds_of(method, Script({0: Plan(("c0", "c1"))}))
    (outcome,) = loop.finish("adapt", ["c2"])
    assert set(outcome.scores) == {"pre", "post"}
