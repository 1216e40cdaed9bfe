"""The server's loop, shared by all engines: send, fit, merge, evaluate, remember."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, overload

import numpy as np
from pydantic import Field

from sparsona.engines import Engine
from sparsona.federation.schedule import Plan, Schedule
from sparsona.federation.worker import Job, Outcome, Scored, Setup
from sparsona.message import Stamp, paper_bytes
from sparsona.method import Arrival, ClientId, ServerContext
from sparsona.runs.checkpoint import Checkpointer, LoopState, PendingReply, Snapshot
from sparsona.runs.records import ClientRecord, RoundReport, RunLog
from sparsona.wire import EncodeCache, Frame, Limit, decode, encode


@dataclass(frozen=True)
class Evaluation:
    """When and where models are measured.

    Every `every` rounds and after the last (0: only then). `post` of a client that did not take part is what it would
    be had it been asked, and costs a training: `participants` leaves it out, except after the last round. `ft` adds
    the third point.
    """

    every: Annotated[int, Field(ge=0)] = 1
    post: Literal["everyone", "participants"] = "everyone"
    ft: bool = False


AHEAD, LARGE = 2, 2**22
"""How many replies are decoded ahead of the one that is being merged, where all have at least so many bytes."""


class Arrivals(Sequence[Arrival]):
    """Replies sorted by client, each decoded when it is asked for: one pass holds a few messages at a time."""

    def __init__(self, flights: Iterable[PendingReply], limit: Limit, lengths: tuple[int, ...]) -> None:
        self._flights = sorted(flights, key=lambda f: (f.client, f.round))
        self._limit = limit
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._flights)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> list[Arrival]: ...
    def __getitem__(self, index: int | slice) -> Arrival | list[Arrival]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        flight = self._flights[index]
        message = decode(flight.frame.tobytes(), self._limit, self._lengths)
        return Arrival(flight.client, message, flight.round)

    def __iter__(self) -> Iterator[Arrival]:
        """One after another; the next ones are decoded meanwhile, where that takes long enough."""
        if sum(len(flight.frame) for flight in self._flights) < LARGE:
            yield from map(self.__getitem__, range(len(self)))
            return
        with ThreadPoolExecutor(AHEAD) as helpers:
            coming: deque[Future[Arrival]] = deque()
            for number in range(len(self) + AHEAD):
                if number < len(self):
                    coming.append(helpers.submit(self.__getitem__, number))
                if number >= AHEAD and coming:
                    yield coming.popleft().result()


class Rounds:
    """One run of the server. All that it must remember between two rounds is in a :class:`Snapshot`."""

    def __init__(
        self,
        setup: Setup,
        engine: Engine,
        schedule: Schedule,
        evaluation: Evaluation,
        run_log: RunLog,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        self.setup = setup
        self.engine = engine
        self.schedule = schedule
        self.evaluation = evaluation
        self.run_log = run_log
        self.checkpointer = checkpointer
        if checkpointer is not None:
            engine.store.settle(checkpointer.clients)
        self.server: Any = setup.method.start_server(setup.task)
        self.done = 0
        self.flights: tuple[PendingReply, ...] = ()
        self.acked: dict[ClientId, int] = {}
        self.clock = 0.0
        """Simulated seconds since the first round began."""
        self._known: dict[ClientId, tuple[Scored, ...]] = {}
        self._before = 0.0
        self._began = time.perf_counter()
        self._limit = setup.limit()
        self._lengths = setup.task.layout.lengths

    def resume(self) -> None:
        """Continue where the last checkpoint was taken."""
        if self.checkpointer is None:
            return
        snapshot = self.checkpointer.load(self.server, LoopState(), self.engine.store)
        self.run_log.rewind(snapshot.records if snapshot else 0, snapshot.done if snapshot else 0)
        if snapshot:
            self.done, self.server, self._before = snapshot.done, snapshot.server, snapshot.seconds
            loop = snapshot.loop
            self.flights, self.acked, self.clock = loop.pending, dict(loop.acked), loop.clock

    @property
    def seconds(self) -> float:
        """The time spent on this run, earlier sessions included."""
        return self._before + time.perf_counter() - self._began

    def run(self, on_round: Callable[[RoundReport], None] = lambda report: None) -> None:
        while self.done < self.setup.task.rounds:
            report = self.run_log.write(self._round(self.done).values())
            self.done += 1
            if self.checkpointer is not None:
                self.checkpointer.save(self._snapshot(), self.engine.store)
            on_round(report)

    def _snapshot(self) -> Snapshot[LoopState]:
        loop = LoopState(self.flights, self.acked, self.clock)
        return Snapshot(self.done, self.server, loop, self.run_log.length(), self.seconds)

    def _round(self, round: int) -> dict[ClientId, ClientRecord]:
        lines: dict[ClientId, ClientRecord] = {}
        task, phases = self.setup.task, self.setup.method.phases(round)
        busy = {flight.client for flight in self.flights}
        plan = self.schedule.plan(round, [k for k in task.clients if k not in busy], task.chance)
        last = round + 1 == task.rounds
        evaluate = last or (self.evaluation.every > 0 and (round + 1) % self.evaluation.every == 0)
        for number, phase in enumerate(phases):
            training = number + 1 == len(phases)
            invited = [k for k in task.clients if k not in busy] if phase.everyone else plan.invited
            context = self._turn(round, number)
            memo = EncodeCache()
            self._serve(
                context,
                invited,
                plan if training else replace(plan, delay={}),
                training,
                evaluate and training,
                memo,
                lines,
            )
            if evaluate and training and (last or self.evaluation.post == "everyone"):
                absent = [k for k in task.clients if "post" not in _line(lines, round, k).test]
                self._measure("trial", context, absent, memo, lines, round)
            self._merge(context)
        if evaluate:
            after = self._turn(round + 1, len(self.setup.method.phases(round + 1)) - 1)
            self._measure("personal", after, task.clients, EncodeCache(), lines, round)
        return {client: replace(line, clock=self.clock) for client, line in lines.items()}

    def _turn(self, round: int, phase: int) -> ServerContext:
        return ServerContext(self.setup.task, round, phase, {f.client: f.round for f in self.flights})

    def down(self, context: ServerContext, client: ClientId, memo: EncodeCache) -> tuple[Frame, int, Stamp]:
        """The downlink of one client as bytes, and what the papers would count for it."""
        stamp = Stamp(context.round, context.phase, self.acked.get(client, -1))
        message = self.setup.method.send(self.server, client, context).stamped(stamp)
        return encode(message, self._lengths, memo, self.setup.packing), paper_bytes(message), stamp

    def _serve(
        self,
        context: ServerContext,
        invited: Sequence[ClientId],
        plan: Plan,
        training: bool,
        score: bool,
        memo: EncodeCache,
        lines: dict[ClientId, ClientRecord],
    ) -> None:
        """Send to the invited clients, let them work, and put their replies under way."""

        def jobs() -> Iterator[Job]:
            for client in self._longest_first(invited):
                frame, paper, stamp = self.down(context, client, memo)
                line = _line(lines, context.round, client)
                lines[client] = replace(
                    line, took_part=True, down=line.down + frame.ledger, paper_down=line.paper_down + paper
                )
                if client not in plan.crashed:
                    yield Job("fit", client, stamp, frame.data, score, known=self._known.get(client, ()))

        began, timing = self.clock, plan.timing
        awaited: dict[ClientId, float] = {}
        for outcome in self.engine.run(jobs()):
            client, sent = outcome.job.client, outcome.frame.data
            if score:
                self._known[client] = outcome.known
            line = _measured(lines[client], outcome)
            delay = plan.delay.get(client, 0)
            took = timing.seconds(client, len(outcome.job.down), outcome.samples, len(sent)) if timing else 0.0
            lost = client in plan.lost or (not delay and timing is not None and timing.misses(took))
            if not delay and not lost:
                awaited[client] = took
            lines[client] = replace(
                line,
                up=line.up + outcome.frame.ledger,
                paper_up=line.paper_up + outcome.paper,
                loss=outcome.loss,
                seconds=line.seconds + outcome.seconds,
                flops=line.flops + outcome.flops,
                took=line.took + took,
            )
            if not lost:
                at, frame = 0.0 if delay else began + took, np.frombuffer(sent, np.uint8)
                self.flights += (PendingReply(context.round + delay, client, context.round, frame, at),)
        if timing is not None:
            silent = any(client not in awaited and client not in plan.delay for client in invited)
            self.clock += timing.length(awaited, silent, training)
        for client in invited:
            arrived = client in awaited and began + awaited[client] <= self.clock
            lines[client] = replace(lines[client], arrived=arrived)

    def _merge(self, context: ServerContext) -> None:
        """Hand the server what has arrived by now."""
        here = [flight.due <= context.round and flight.at <= self.clock for flight in self.flights]
        due = [flight for flight, is_here in zip(self.flights, here, strict=True) if is_here and len(flight.frame)]
        self.flights = tuple(flight for flight, is_here in zip(self.flights, here, strict=True) if not is_here)
        if not due:
            return
        context = self._turn(context.round, context.phase)
        self.server = self.setup.method.aggregate(self.server, Arrivals(due, self._limit, self._lengths), context)
        for flight in due:
            self.acked[flight.client] = max(flight.round, self.acked.get(flight.client, -1))

    def _measure(
        self,
        kind: Literal["trial", "personal"],
        context: ServerContext,
        clients: Sequence[ClientId],
        memo: EncodeCache,
        lines: dict[ClientId, ClientRecord],
        round: int,
    ) -> None:
        """Evaluate clients; the downlinks made for it are not traffic."""
        ordered = self._longest_first(clients)
        for outcome in self.engine.run(self._trial(kind, context, client, memo) for client in ordered):
            client = outcome.job.client
            self._known[client] = outcome.known
            lines[client] = _measured(_line(lines, round, client), outcome)

    def _trial(
        self, kind: Literal["trial", "personal"], context: ServerContext, client: ClientId, memo: EncodeCache
    ) -> Job:
        frame, _, stamp = self.down(context, client, memo)
        return Job(
            kind,
            client,
            stamp,
            frame.data,
            score=True,
            fine_tune=self.evaluation.ft and kind == "personal",
            known=self._known.get(client, ()),
        )

    def _longest_first(self, clients: Sequence[ClientId]) -> list[ClientId]:
        """Clients by their samples, so that no worker begins the longest context when the others are done."""
        shares = self.setup.federation.splits
        return sorted(clients, key=lambda client: (-len(shares[client].train), client))

    def join(self, clients: Sequence[ClientId]) -> list[Outcome]:
        """After the last round: the turns by which new clients become known to the server, if the method has any."""
        done: list[Outcome] = []
        for number, phase in enumerate(self.setup.method.phases(0)):
            if phase.joining:
                context = self._turn(0, number)
                for outcome in self.engine.run(self._jobs("fit", context, clients)):
                    frame = np.frombuffer(outcome.frame.data, np.uint8)
                    self.flights += (PendingReply(0, outcome.job.client, 0, frame, self.clock),)
                    done.append(outcome)
                self._merge(context)
        return done

    def finish(self, kind: Literal["personal", "adapt"], clients: Iterable[ClientId]) -> Iterator[Outcome]:
        """After the last round: every client's model, or what new clients make of it once they have joined."""
        rounds = self.setup.task.rounds
        context = self._turn(rounds, len(self.setup.method.phases(rounds)) - 1)
        return self.engine.run(self._jobs(kind, context, clients))

    def _jobs(
        self, kind: Literal["fit", "personal", "adapt"], context: ServerContext, clients: Iterable[ClientId]
    ) -> Iterator[Job]:
        memo = EncodeCache()
        for client in clients:
            frame, _, stamp = self.down(context, client, memo)
            yield Job(kind, client, stamp, frame.data, score=kind == "adapt", keep_model=kind == "personal")


def _line(lines: dict[ClientId, ClientRecord], round: int, client: ClientId) -> ClientRecord:
    return lines.get(client) or ClientRecord(round + 1, client)


def _measured(line: ClientRecord, outcome: Outcome) -> ClientRecord:
    for point, scores in outcome.scores.items():
        line = line.measured(point, scores.test, scores.validation)
    return line
