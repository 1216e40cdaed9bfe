"""The server's loop, shared by all engines: send, fit, aggregate, evaluate, remember."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sparsona.errors import RunError
from sparsona.federation.delivery import Delivery, LoopState, Order, PendingReply, with_extras
from sparsona.federation.engine import Engine
from sparsona.federation.evaluation import EVERY_ROUND, Evaluation
from sparsona.federation.gate import Aggregate, ReplyGate, Screening, aggregation, heaviest, reader
from sparsona.federation.references import usable
from sparsona.federation.schedule import EVERYONE, Plan, Schedule
from sparsona.federation.setup import Setup
from sparsona.federation.worker import NOTHING, Job, Outcome, ScoredModel
from sparsona.layout import Layout
from sparsona.message import Message, Part, paper_bytes
from sparsona.method import ClientId, ServerContext
from sparsona.personal.weights import equal_weights, next_weights
from sparsona.runs.checkpoint import Checkpointer, Snapshot
from sparsona.runs.records import ClientRecord, RoundReport, RunLog
from sparsona.runs.resting import RestingStore, resting_names
from sparsona.wire import EncodeCache, Frame, PackingName, Reference, decode, encode
from sparsona.wire.frame import VERSION
from sparsona.wire.references import same_objects

MEMORY = 512 * 2**20  # bytes of client state on the server that stay in memory


class Rounds:
    """One run of the server; its snapshot holds all state between two rounds."""

    def __init__(
        self,
        setup: Setup,
        engine: Engine,
        schedule: Schedule,
        evaluation: Evaluation,
        run_log: RunLog,
        checkpointer: Checkpointer | None = None,
        memory: int = MEMORY,
    ) -> None:
        """Take `memory` bytes for client state on the server and the last downlinks; the rest spills to files."""
        self.setup = setup
        self.engine = engine
        self.schedule = schedule
        self.evaluation = evaluation
        self.run_log = run_log
        self.checkpointer = checkpointer
        self.resting = RestingStore(memory // 2)
        engine.references.files.limit = memory // 2
        if checkpointer is not None:
            engine.store.settle(checkpointer.clients)
            engine.references.files.settle(checkpointer.references)
            self.resting.files.settle(checkpointer.resting)
        self.server: Any = setup.method.start_server(setup.task)
        self.done = 0
        self.delivery = Delivery()
        self.refused: list[tuple[int, ClientId, str]] = []
        """The refused replies of this session: round, client and reason."""
        self._left_out: dict[ClientId, str] = {}
        self._known: dict[ClientId, tuple[ScoredModel, ...]] = {}
        self._last_named: tuple[Mapping[str, Part], Reference] | None = None
        self._before = 0.0
        self._began = time.perf_counter()
        self._limit = setup.limit()
        self._lengths = setup.task.layout.lengths
        self._buffers = Layout.of_buffers(setup.module).size
        self._told = setup.personal.told
        splits = setup.federation.splits
        declared = {client: setup.config.most_examples(len(split.train)) for client, split in splits.items()}
        heavy = {} if setup.max_weight is None else heaviest(declared, setup.max_weight)
        initial = float(np.linalg.norm(setup.task.initial))
        self.gate = ReplyGate(declared, initial, setup.max_update_norm, heavy, run_log.in_a_row)

    def resume(self) -> None:
        """Continue from the last checkpoint."""
        if self.checkpointer is None:
            return
        snapshot = self.checkpointer.load(self.server, LoopState(), self.engine.store, self.setup.task.rounds)
        self.run_log.rewind(snapshot.records if snapshot else 0, snapshot.done if snapshot else 0)
        if snapshot:
            self.done, self.server, self._before = snapshot.done, snapshot.server, snapshot.seconds
            self.delivery = Delivery(snapshot.loop)
            if any(reply.frame[2] != VERSION for reply in snapshot.loop.pending):
                problem = f"replies on their way are not of wire format {VERSION}: run it again into another --out"
                raise RunError(f"{self.checkpointer.folder}: {problem}")
            for name in self.delivery.references:
                if self.engine.references.find(bytes.fromhex(name)) is None:
                    folder = self.checkpointer.folder
                    raise RunError(f"{folder}: reference {name} is damaged or missing: run it again into another --out")
        self.engine.references.files.adopt(self.checkpointer.references, self.delivery.references)
        self.resting.files.adopt(self.checkpointer.resting, resting_names(self.server))

    @property
    def seconds(self) -> float:
        """Return the seconds spent on this run, earlier sessions included."""
        return self._before + time.perf_counter() - self._began

    @property
    def clock(self) -> float:
        """Return the simulated seconds since the first round began."""
        return self.delivery.clock

    def run(self, on_round: Callable[[RoundReport], bool | None] = lambda report: None) -> None:
        """Run all remaining rounds, until the validation score stalls, or until `on_round` returns False."""
        patience, going = self.evaluation.patience, True
        while going and self.done < self.setup.task.rounds and not self.run_log.stalled(patience):
            report = self.run_log.write(self._round(self.done).values())
            self.done += 1
            if self.checkpointer is None:
                self.resting.keep(self.server)
            else:
                server, references = self.resting.written(self.server), self.engine.references.files
                self.resting.keep(server)
                references.save()
                state = self.delivery.snapshot()
                snapshot = Snapshot(self.done, server, state, self.run_log.length(), self.seconds)
                self.checkpointer.save(snapshot, self.engine.store, references, self.resting.files)
            going = on_round(report) is not False

    def leave_out(self, client: ClientId, reason: str) -> None:
        """Note why a reply of this round never reaches the loop: it was unusable, or the client refused."""
        self._left_out[client] = reason

    def close(self) -> None:
        """Remove temporary files."""
        self.resting.close()

    def _round(self, round: int) -> dict[ClientId, ClientRecord]:
        records: dict[ClientId, ClientRecord] = {}
        task, phases = self.setup.task, self.setup.method.phases(round)
        busy = self.delivery.busy
        idle = [client for client in task.clients if client not in busy]
        plan = self.schedule.plan(round, idle, task.chance)
        last, evaluate = round + 1 == task.rounds, self.evaluation.due(round, task.rounds)
        for number, phase in enumerate(phases):
            order, training, cache = (round, number), number + 1 == len(phases), EncodeCache()
            invited = idle if phase.everyone else plan.invited
            this = replace(plan, invited=tuple(invited), delay=plan.delay if training else {})
            self._serve(order, this, training, evaluate and training, cache, records)
            if evaluate and training and (last or self.evaluation.post == "everyone"):
                absent = [k for k in task.clients if k not in records or "post" not in records[k].test]
                self._measure("trial", order, absent, cache, records, round)
            reasons = self._aggregate(order)
            reasons, self._left_out = self._left_out | reasons, {}
            for client, reason in reasons.items():
                _record(records, round, client).refused = reason
                self.refused.append((round, client, reason))
        if evaluate:
            self._measure("personal", self._last_order(round + 1), task.clients, EncodeCache(), records, round)
        for record in records.values():
            record.clock = self.clock
        return records

    def _last_order(self, round: int) -> Order:
        return round, len(self.setup.method.phases(round)) - 1

    def _context(self, order: Order) -> ServerContext:
        round, number = order
        return ServerContext(self.setup.task, round, self.setup.method.phases(round)[number], self.delivery.busy)

    def _message(self, context: ServerContext, client: ClientId) -> Message:
        """Return the downlink of one client."""
        sent = self.setup.method.send(self.server, client, context)
        return with_extras(sent, self.delivery.buffers, self.delivery.pool)

    def _send(
        self, order: Order, context: ServerContext, client: ClientId, cache: EncodeCache, score: bool = False
    ) -> tuple[Job, Frame, int]:
        """Return the job of one client, the downlink that is sent with it, and its size as papers count it."""
        known = self._known.get(client, ()) if score else ()
        if self.setup.method.alone:
            return Job("fit", client, self.delivery.send(client, order), (), score, known=known), NOTHING, 0
        message, held = self._message(context, client), self.delivery.held_by(client)
        base = self.engine.references.find(bytes.fromhex(held)) if held else None
        stamp = self.delivery.send(client, order, self._named(message))
        frame = encode(message.stamped(stamp), self._lengths, cache, self.setup.packing, base)
        if self.engine.known is not None:
            self.engine.known.add(frame.pieces, message.stamped(stamp), shared=True)
        return Job("fit", client, stamp, frame.pieces, score, known=known), frame, paper_bytes(message)

    def _named(self, message: Message) -> str:
        """Return a downlink's name among the references, if it becomes one; known arrays keep their name."""
        parts = usable(message.parts) if self.setup.packing != "plain" else {}
        if not parts:
            return ""
        if self._last_named is None or not same_objects(parts, self._last_named[0]):
            self._last_named = parts, Reference.of(parts)
        return self.engine.references.add(self._last_named[1])

    def _serve(
        self,
        order: Order,
        plan: Plan,
        training: bool,
        score: bool,
        cache: EncodeCache,
        records: dict[ClientId, ClientRecord],
    ) -> None:
        """Send to the invited clients, run their turns, and put their replies on their way."""
        context = self._context(order)

        def jobs() -> Iterator[Job]:
            for client in self._longest_first(plan.invited):
                job, frame, paper = self._send(order, context, client, cache, score)
                record = _record(records, context.round, client)
                record.took_part = True
                record.down += frame.ledger
                record.paper_down += paper
                if client not in plan.crashed:
                    yield job

        began, timing = self.clock, plan.timing
        awaited: dict[ClientId, float] = {}
        for outcome in self.engine.run(jobs()):
            client, sent, asked = outcome.client, outcome.frame.data, outcome.order
            if outcome.refused:
                self.leave_out(client, outcome.refused)
                continue
            if score:
                self._known[client] = outcome.known
            delay = plan.delay.get(client, 0)
            took = timing.seconds(client, outcome.received, outcome.samples, len(sent)) if timing else 0.0
            lost = client in plan.lost or (not delay and timing is not None and timing.misses(took))
            if not delay and not lost:
                awaited[client] = took
            _note(_record(records, context.round, client), outcome, took)
            if not lost:
                at, frame = 0.0 if delay else began + took, np.frombuffer(sent, np.uint8)
                self.delivery.take_in(PendingReply(context.round + delay, client, *asked, frame, at))
        self.delivery.keep_open(self.engine.working)
        if timing is not None:
            silent = any(client not in awaited and client not in plan.delay for client in plan.invited)
            self.delivery.clock += timing.length(awaited, silent, training)
        for client in {*plan.invited, *awaited}:
            records[client].arrived = client in awaited and began + awaited[client] <= self.clock

    def _aggregate(self, order: Order) -> dict[ClientId, str]:
        """Aggregate the replies that have arrived; return the refused clients with the reasons."""
        method, server, asked = self.setup.method, self.server, self._context(order)
        replies = self.delivery.arrived(order[0])
        if method.alone:
            self.delivery.acknowledge(replies)
            return {}
        self.delivery.keep_sent(lambda client: dict(method.send(server, client, asked).parts))
        screening: Screening[Aggregate] = Screening(self.gate, reader(method, server, asked, self._decoded))
        aggregate = aggregation(method, server, self._context(order), screening, self._buffers, self._told)
        found = screening.aggregated(replies, aggregate)
        if found is not None:
            self.server = self.resting.rested(found[0])
            self.delivery.buffers = self.delivery.buffers if found[1] is None else found[1]
            if found[2] is not None:
                before = self.delivery.pool
                before = equal_weights(len(self.setup.personal.pool)) if before is None else before
                self.delivery.pool = next_weights(found[2], before)
        self.delivery.acknowledge([reply for reply in replies if reply not in screening.refused])
        self.engine.references.files.keep(self.delivery.references)
        return {reply.client: reason for reply, reason in screening.refused.items()}

    def _decoded(self, reply: PendingReply) -> Message:
        """Decode a reply, which may be coded against the downlink that it answers."""
        find = self.engine.references.find

        def answered(fingerprint: bytes) -> Reference | None:
            return find(fingerprint) if fingerprint.hex() == reply.reference else None

        data, known = reply.frame.data, self.engine.known
        decoded = partial(decode, data, self._limit, self._lengths, references=answered)
        return decoded() if known is None else known.take((data,), decoded)

    def _measure(
        self,
        kind: Literal["trial", "personal"],
        order: Order,
        clients: Sequence[ClientId],
        cache: EncodeCache,
        records: dict[ClientId, ClientRecord],
        round: int,
    ) -> None:
        """Evaluate clients; downlinks for evaluation are not traffic."""
        fine_tune = self.evaluation.ft and kind == "personal"
        jobs = self._jobs(kind, order, self._longest_first(clients), cache)
        best = self.run_log.best_round
        marked = (replace(job, score=True, fine_tune=fine_tune, best_round=best) for job in jobs)
        for outcome in self.engine.run(marked):
            client = outcome.client
            self._known[client] = outcome.known
            _note_scores(_record(records, round, client), outcome)

    def _jobs(
        self,
        kind: Literal["fit", "trial", "personal", "adapt"],
        order: Order,
        clients: Iterable[ClientId],
        cache: EncodeCache,
    ) -> Iterator[Job]:
        """Yield turns beside the rounds; evaluations are not traffic and not packed."""
        context = self._context(order)
        packing: PackingName = "plain" if kind in ("trial", "personal") else self.setup.packing
        for client in clients:
            if kind == "fit":
                yield self._send(order, context, client, cache)[0]
                continue
            stamp, down = self.delivery.stamp(client, order), NOTHING
            if not self.setup.method.alone:
                down = encode(self._message(context, client).stamped(stamp), self._lengths, cache, packing)
            yield Job(kind, client, stamp, down.pieces, known=self._known.get(client, ()))

    def _longest_first(self, clients: Sequence[ClientId]) -> list[ClientId]:
        """Return clients by falling number of samples, so that the longest turns start first."""
        splits = self.setup.federation.splits
        return sorted(clients, key=lambda client: (-len(splits[client].train), client))

    def join(self, clients: Sequence[ClientId]) -> list[Outcome]:
        """Run the turns by which new clients join after the last round, if the method has any."""
        done: list[Outcome] = []
        for number, phase in enumerate(self.setup.method.phases(0)):
            if phase.joining and clients:
                for outcome in self.engine.run(self._jobs("fit", (0, number), clients, EncodeCache())):
                    frame = np.frombuffer(outcome.frame.data, np.uint8)
                    self.delivery.take_in(PendingReply(0, outcome.client, 0, number, frame, self.clock))
                    done.append(outcome)
                self._aggregate((0, number))
        return done

    def last_jobs(self, kind: Literal["personal", "adapt"], clients: Iterable[ClientId]) -> Iterator[Job]:
        """Yield turns after the last round: in a personal one a client gets the model that it keeps."""
        best = self.run_log.best_round
        for job in self._jobs(kind, self._last_order(self.done), clients, EncodeCache()):
            yield replace(job, best_round=best)

    def finish(
        self, kind: Literal["personal", "adapt"], clients: Iterable[ClientId], keep: bool = False
    ) -> Iterator[Outcome]:
        """Return every client's model after the last round, or adapt new clients; with `keep` their models, too."""
        new = kind == "adapt"
        jobs = self.last_jobs(kind, clients)
        return self.engine.run(replace(job, score=new, keep_model=keep or not new) for job in jobs)


def _record(records: dict[ClientId, ClientRecord], round: int, client: ClientId) -> ClientRecord:
    """Return the client's record of this round, to be filled in."""
    return records.setdefault(client, ClientRecord(round + 1, client))


def _note(record: ClientRecord, outcome: Outcome, took: float) -> None:
    """Record a turn that took `took` simulated seconds."""
    _note_scores(record, outcome)
    record.down += outcome.resent
    record.up += outcome.frame.ledger
    record.paper_up += outcome.paper
    record.loss = outcome.loss
    record.seconds += outcome.seconds
    record.flops += outcome.flops
    record.took += took
    record.queries = outcome.queries


def _note_scores(record: ClientRecord, outcome: Outcome) -> None:
    for point, scores in outcome.scores.items():
        record.measured(point, scores.test, scores.validation, scores.others)


def assemble(
    setup: Setup,
    engine: Engine,
    schedule: Schedule = EVERYONE,
    evaluation: Evaluation = EVERY_ROUND,
    *,
    records: Path | None = None,
    checkpoint: Path | None = None,
    fewest: int = 1,
    memory: int = MEMORY,
) -> Rounds:
    """Make the loop of a run that has not begun.

    `records` is the file of its log and `checkpoint` the folder of its checkpoints; without them both stay in memory.
    Clients with fewer than `fewest` test rows count in no mean. `memory` limits the bytes of the server's client state.
    """
    run_log = RunLog(setup.test_rows, setup.objective.higher_is_better, records, fewest, setup.keep)
    checkpointer = None if checkpoint is None else Checkpointer(checkpoint, records)
    return Rounds(setup, engine, schedule, evaluation, run_log, checkpointer, memory)
