"""One run on a node, from the agreement on: its turns, its evaluations, its end, and the privacy that they cost."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from sparsona.data.schema.schema import Schema
from sparsona.engines.network.answers import Tells, kinds_of_bytes, model_file, reply_to_turn, report_of
from sparsona.engines.network.carrier import Answer
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.heads import Finish, Finished, TurnOrder, Whole
from sparsona.engines.network.memory import NodeMemory
from sparsona.engines.network.rules import Rules
from sparsona.errors import InputError, MissingReference, WireError
from sparsona.experiment import Experiment, to_toml
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, JobKind, Outcome, ScoredModel, Worker
from sparsona.files import write_atomically
from sparsona.message import Message, Stamp
from sparsona.method import ClientId
from sparsona.privacy.ledger import OwnerLedger
from sparsona.privacy.mechanism import BudgetSpent, Meter
from sparsona.runs.answers import write_answers
from sparsona.runs.names import file_stem
from sparsona.runs.state import digest
from sparsona.version import __version__

log = logging.getLogger("sparsona.node")


@dataclass
class Session:
    """A run that a node takes part in. `most` is the largest downlink in bytes, `known` are the last evaluated models.

    `tells`: per metric, True if there are enough test and validation rows to send its scores.
    """

    run: str
    client: ClientId
    rules: Rules
    ledger: OwnerLedger
    experiment: Experiment
    schema: Schema
    setup: Setup
    worker: Worker
    kept: NodeMemory
    most: int
    tells: Tells
    known: tuple[ScoredModel, ...] = ()

    def turn(self, asked: TurnOrder, frame: bytes) -> Answer:
        """Train or evaluate as the order says; a repeated order to train gets the same reply again."""
        job = replace(self._job(asked.job, asked, frame), score=asked.score, fine_tune=asked.fine_tune)
        round = job.stamp.round + 1
        try:
            down = self.worker.received(job)
        except MissingReference:
            log.info("round %d: a downlink refers to one that is not here, asked for the whole", round)
            return Whole().head, b""
        if down.stamp.order != job.stamp.order:
            raise WireError("the head and the frame of an order name different rounds")
        if round > (rounds := self.setup.task.rounds) + 1:
            raise WireError(f"round {round} is not one of the {rounds} that were agreed on")
        if job.kind == "fit":
            return self._fit(job, frame, down)
        self.kept.count_scored(rounds)
        log.info("round %d: evaluates a model for the server", round)
        memory, outcome = self.worker.run(job, self.kept.memory, self._meter(job, down))
        reply = self._reply(outcome)
        if job.writes:
            self.kept.keep_models(memory)
        return reply, outcome.frame.data

    def _fit(self, job: Job, frame: bytes, down: Message) -> Answer:
        round, order = job.stamp.round + 1, job.stamp.order
        if (known := self.kept.answered(order, frame)) is not None:
            log.info("round %d: the same order again, the same reply again", round)
            return known
        self.kept.roll_back(order)
        memory, outcome = self.worker.run(job, self.kept.memory, self._meter(job, down))
        reply = self._reply(outcome)
        self.kept.record(order, frame, memory, reply, outcome.frame.data)
        self.kept.hold(down)
        log.info(
            "round %d: received %d bytes (%s), trained %.1f s, sent %d bytes (%s)",
            round,
            len(frame),
            ", ".join(down.parts) or "nothing",
            outcome.seconds,
            len(outcome.frame.data),
            ", ".join(f"{k} {v:.0f}" for k, v in kinds_of_bytes(outcome).items()) or "nothing",
        )
        if self.setup.privacy is not None:
            own, spent = self.setup.privacy[self.client], self.ledger
            log.info(
                "privacy: this run has spent epsilon %.3f of its %.3f; all runs have reserved %.3f of %g",
                spent.spent(self.run),
                own.epsilon(own.most),
                spent.reserved[0],
                spent.epsilon,
            )
        return reply, outcome.frame.data

    def finish(self, asked: Finish, frame: bytes, folder: Path, data: str) -> Answer:
        """Write the client's model and report into `folder`, and reply with the hash of its memory.

        `data` is the name of the owner's file.
        """
        job = replace(self._job("personal", asked, frame), score=True, keep_model=True)
        _, outcome = self.worker.run(job, self.kept.memory, self._meter(job, self.worker.received(job)))
        assert outcome.model is not None
        setup, experiment = self.setup, self.experiment
        model = model_file(self.client, data, experiment, setup, self.schema, outcome)
        file = folder / f"{file_stem(self.client)}.safetensors"
        write_atomically(file, model)
        if outcome.answers is not None:
            write_answers(folder, {self.client: outcome.answers})
        report = report_of(self.client, experiment, setup, outcome.scores, file, outcome.experts)
        write_atomically(folder / "report.txt", report)
        log.info("the run is over: the model is in %s and %s", file, "was sent" if self.rules.model else "nowhere else")
        return Finished(memory=self.kept.digest).head, model if self.rules.model else b""

    def _job(self, kind: JobKind, asked: TurnOrder | Finish, frame: bytes) -> Job:
        stamp = Stamp(asked.round, asked.phase, None)
        return Job(kind, self.client, stamp, (frame,), known=self.known, best_round=asked.best_round)

    def _reply(self, outcome: Outcome) -> Head:
        """Return the head of a reply; with a privacy budget without its duration, which depends on the sampled rows."""
        if outcome.refused:
            raise BudgetSpent(outcome.refused)
        self.known = outcome.known
        told = outcome if self.setup.privacy is None else replace(outcome, seconds=0.0)
        return reply_to_turn(told, self.rules.scores, self.tells)

    def _meter(self, job: Job, down: Message) -> Meter | None:
        """Return the meter of a turn, which charges the owner's ledger; None without a privacy budget.

        A turn is identified by everything that its answer depends on. A different turn gets its own queries, and so its
        own noise. If two answers had the same noise, their difference would have none.
        """
        if self.setup.privacy is None:
            return None
        if job.kind == "trial" or job.fine_tune:
            raise InputError(
                "with a privacy budget this node trains in its turns only: set evaluation.post=participants, and leave "
                "evaluation.ft out"
            )
        order, parts = repr((job.kind, job.stamp.order, down.stamp)), digest({"parts": dict(down.parts)})
        agreed = json.dumps([__version__, self.setup.task.clients, self.schema.to_json()])
        turn = order, parts, self.kept.digest, self.kept.rows, to_toml(self.experiment), agreed
        first, charge = self.ledger.begin(self.run, self.setup.privacy[self.client], "\n".join(turn).encode())
        return self.worker.meter(self.client, first, charge)
