"""The engine on a network: sends jobs as messages and returns the outcomes that arrive by the deadline."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from sparsona.engines.network.carrier import HIGHEST, Carrier, Parcel, Returned
from sparsona.engines.network.flower.started.sparsona_pauses import GROWTH, Backoff
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.heads import (
    MessageTooOld,
    NeedsReference,
    Ping,
    TurnOrder,
    TurnReply,
    ledger_of,
    scores_of,
)
from sparsona.engines.network.heads import answer as told
from sparsona.engines.network.heads import why as why_of
from sparsona.errors import WireError, one_line
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.method import ClientId
from sparsona.runs.store import ClientStore
from sparsona.wire import Frame, Ledger, decode, encode
from sparsona.wire.known import KnownFrames

log = logging.getLogger(__name__)

SOON = 0.1  # Seconds between two pulls after a reply. Without replies the pause grows, up to the carrier's `idle`.
RETRY = 2.0  # Seconds before a message is sent again to an unreachable node. The pause grows with each attempt.
PING_TTL = 60.0  # seconds that a ping waits for its node
MOST_DOUBLED = 6  # limit on doublings of the pause between pings: a node may train for hours, or be away for days


@dataclass(frozen=True)
class PendingMessage:
    """A message on its way. Its reply is awaited until the second `until`; no ping is sent before `silent_until`."""

    client: ClientId
    head: Head
    body: bytes
    until: float
    job: Job | None = None
    resent: Ledger = field(default_factory=Ledger)
    silent_until: float = 0.0
    attempts: int = 0
    pings: int = 0


class MessageExchange:
    """Messages to nodes and their replies, matched by the message that they answer.

    A message that did not reach its node is sent again until its time is over. If a node is cut off while it holds a
    message, neither it nor its carrier says so. So a silent node gets a ping. A node works on one message at a time: if
    it answers the ping first, it does not have the message, which is sent again.

    Each client's messages have growing numbers, also over restarts, since they begin at the clock. If an earlier clock
    was ahead, the node answers `MessageTooOld` with its larger number.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._numbers = dict.fromkeys(carrier.clients, time.time_ns() // 1000)
        self._awaited: dict[str, PendingMessage] = {}
        self._again: list[tuple[float, PendingMessage]] = []
        self._pings: dict[str, str] = {}
        """The message that each ping asks about."""
        self._away: set[ClientId] = set()
        self.late: set[ClientId] = set()
        """Clients that did not answer in time, until they answer again."""
        self._refused: dict[ClientId, str] = {}
        """Per client the reason why its last unusable reply was left out."""
        self.on_left_out: Callable[[ClientId, str], None] = lambda client, why: None
        """Called with the client and the reason for every unusable reply to an order to train."""

    @property
    def clients(self) -> frozenset[ClientId]:
        """Return the clients whose replies are awaited."""
        return frozenset(one.client for one in (*self._awaited.values(), *(later for _, later in self._again)))

    def send(self, several: Iterable[PendingMessage]) -> None:
        now = time.monotonic()
        out = [one for one in several if one.until > now]
        parcels = [self._parcel(one.client, one.head, one.body, max(1.0, one.until - now)) for one in out]
        for name, one in zip(self._carrier.push(parcels), out, strict=True):
            if name is None:
                self._later(one, "the message is not taken")
            else:
                self._awaited[name] = replace(one, silent_until=now + self._carrier.silence, pings=0)

    def _parcel(self, client: ClientId, head: Head, body: bytes, ttl: float) -> Parcel:
        self._numbers[client] += 1
        return Parcel(client, self._numbers[client], head, body, ttl)

    def receive(self, until: float) -> Iterator[tuple[PendingMessage, Head, bytes]]:
        """Yield replies as they arrive, until the second `until` or until no reply is awaited."""
        pauses = Backoff(SOON, self._carrier.idle)
        while self._awaited or self._again:
            self._send_due(time.monotonic())
            returned = self._carrier.pull([*self._awaited, *self._pings])
            for answer in returned:
                asked = self._awaited.pop(answer.name, None)
                if asked is not None and (head := self._read(asked, answer)) is not None:
                    yield asked, head, answer.body
            self._read_pings(returned)
            if returned:
                pauses.restart()
            now = time.monotonic()
            self._forget_late(now)
            if now >= until:
                return
            if self._awaited or self._again:
                time.sleep(min(pauses.next(), until - now))

    def _send_due(self, now: float) -> None:
        """Send the messages whose retry is due, and pings to silent nodes."""
        due = [one for at, one in self._again if at <= now]
        self._again = [(at, one) for at, one in self._again if at > now]
        self.send(due)
        silent = {k: one for k, one in self._awaited.items() if one.silent_until <= now}
        self._pings = {name: message for name, message in self._pings.items() if message not in silent}
        pings = [self._parcel(one.client, Ping().head, b"", PING_TTL) for one in silent.values()]
        for name, (message, one) in zip(self._carrier.push(pings), silent.items(), strict=True):
            pause = self._carrier.silence * 2 ** min(one.pings, MOST_DOUBLED)
            self._awaited[message] = replace(one, silent_until=now + pause, pings=one.pings + 1)
            if name is not None:
                self._pings[name] = message

    def _read_pings(self, returned: Iterable[Returned]) -> None:
        """Send a message again if its node answers the ping but not the message. A lost ping means nothing."""
        for answer in returned:
            message = self._pings.pop(answer.name, "")
            said = "" if answer.head is None else answer.head["kind"]
            if said in ("pong", "behind") and (asked := self._awaited.pop(message, None)) is not None:
                self._lift(asked.client, answer.head)
                self._later(asked, "it was cut off")

    def _forget_late(self, now: float) -> None:
        for one in [one for one in self._awaited.values() if one.until <= now]:
            log.warning("%s has not answered in time", one.client)
        several = (*self._awaited.values(), *(one for _, one in self._again))
        self.late |= {one.client for one in several if one.until <= now}
        self._awaited = {name: one for name, one in self._awaited.items() if one.until > now}
        self._again = [(at, one) for at, one in self._again if one.until > now]
        self._pings = {name: message for name, message in self._pings.items() if message in self._awaited}

    def _lift(self, client: ClientId, head: Head | None) -> None:
        """Raise the message number of a client above the number that its node says it has answered."""
        with contextlib.suppress(WireError):
            if head is not None and head["kind"] == "behind":
                self._numbers[client] = max(self._numbers[client], min(told(head, MessageTooOld).number, HIGHEST // 2))

    def _read(self, asked: PendingMessage, answer: Returned) -> Head | None:
        """Return the head of a usable reply, else None; schedule the retry of a lost one."""
        head = answer.head
        if answer.lost or (head is not None and head["kind"] in ("away", "behind")):
            self._lift(asked.client, head)
            self._later(asked, answer.why or "its owner's process does not take the message")
            return None
        if head is not None and head["kind"] == "waits":
            if asked.client not in self._away:
                log.warning("%s waits for its owner's consent (sparsona node --accept, on its machine)", asked.client)
                self._away.add(asked.client)
            self._later(asked, "it waits")
            return None
        self._away.discard(asked.client)
        self.late.discard(asked.client)
        if head is None or head["kind"] == "error":
            why = answer.why if head is None else why_of(head)
            self.leave_out(asked, why)
            return None
        return head

    def leave_out(self, asked: PendingMessage, why: str) -> None:
        """Note that a reply cannot be used."""
        why = one_line(why)
        log.warning("the reply of %s is left out: %s", asked.client, why)
        self._refused[asked.client] = why
        if asked.job is not None and asked.job.kind == "fit":
            self.on_left_out(asked.client, why)

    def unanswered(self, clients: Iterable[ClientId]) -> dict[ClientId, str]:
        """Return per client the reason why it has sent no usable reply."""
        return {client: self._refused.pop(client, "it did not answer; its log says why") for client in clients}

    def _later(self, one: PendingMessage, why: str) -> None:
        if one.client not in self._away:
            log.warning("%s is not reached (%s); it is asked again and again", one.client, why)
            self._away.add(one.client)
        pause = min(max(RETRY, self._carrier.idle), RETRY * GROWTH**one.attempts)
        self._again.append((time.monotonic() + pause, replace(one, attempts=one.attempts + 1)))


class NetworkEngine:
    """Runs turns on nodes. Clients that do not answer by the deadline are lost.

    With a `window`, a training phase ends after `window` seconds. Replies that arrive later, but before the deadline,
    come out of a later call of :meth:`run`.
    """

    known: KnownFrames | None = None

    def __init__(
        self,
        setup: Setup,
        post: MessageExchange,
        run: str,
        deadline: float,
        window: float | None = None,
        silent: frozenset[ClientId] = frozenset(),
    ) -> None:
        """`silent` are the clients whose owners do not send scores."""
        self.store = ClientStore(partial(ClientMemory.fresh, setup))
        self.references = ReferenceStore()
        self._setup, self._post, self._run = setup, post, run
        self._deadline, self._window, self._silent = deadline, window, silent
        self._limit = setup.limit()

    @property
    def working(self) -> frozenset[ClientId]:
        return self._post.clients

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        # A client that has missed a deadline is asked to train, but not to evaluate until it answers again:
        # otherwise it would cost the others three deadlines per round.
        unasked = self._silent | self.working | self._post.late
        asked = [job for job in jobs if job.kind == "fit" or job.client not in unasked]
        now = time.monotonic()  # after the downlinks are made: that time must not count for clients
        fits = bool(asked) and asked[0].kind == "fit"
        lasting = self._window is not None and (fits or not asked)
        until = now + (self._window if lasting and self._window is not None else self._deadline)
        self._post.send(
            PendingMessage(job.client, self._head(job), b"".join(job.down), now + self._deadline, job) for job in asked
        )
        for one, head, body in self._post.receive(until):
            if one.job is None:
                continue
            try:
                if head["kind"] == "whole" and one.resent == Ledger():
                    told(head, NeedsReference)
                    self._resend(one)
                    continue
                outcome = self._outcome(one, head, body)
            except WireError as error:
                self._post.leave_out(one, str(error))
                continue
            yield outcome

    def _head(self, job: Job) -> Head:
        order, kind = job.stamp.order, job.kind
        assert kind != "adapt"  # clients that join at the end are for simulations
        turn = TurnOrder(
            run=self._run,
            job=kind,
            round=order[0],
            phase=order[1],
            score=job.score,
            fine_tune=job.fine_tune,
            best_round=job.best_round,
        )
        return turn.head

    def _resend(self, one: PendingMessage) -> None:
        """Send a downlink without reference to earlier ones, to a client that lacks its reference."""
        lengths, packing = self._setup.task.layout.lengths, self._setup.packing
        message = decode(one.body, self._limit, lengths, references=self.references.find)
        frame = encode(message, lengths, packing=packing)
        log.info("%s lacks what its downlink was coded against: it is sent whole", one.client)
        self._post.send([replace(one, body=frame.data, resent=frame.ledger)])

    def _outcome(self, one: PendingMessage, head: Head, body: bytes) -> Outcome:
        """Return the outcome of a reply, with the numbers of its head checked; the frame is decoded later."""
        job = one.job
        assert job is not None
        done = told(head, TurnReply)
        if len(body) > self._limit.bytes:
            raise WireError(f"its frame has {len(body)} bytes, at most {self._limit.bytes} can be needed here")
        return Outcome(
            client=job.client,
            kind=job.kind,
            order=job.stamp.order,
            received=sum(map(len, job.down)),
            frame=Frame((body,), ledger_of(done.ledger, body)),
            paper=done.paper,
            scores=scores_of(done, self._setup.objective.metric_names),
            loss=math.nan if done.loss is None else done.loss,
            seconds=done.seconds,
            flops=done.flops,
            samples=done.samples,
            resent=one.resent,
        )

    def close(self) -> None:
        self.store.files.close()
        self.references.files.close()
