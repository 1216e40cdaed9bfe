"""One run on a node: the description of its data, its turns, evaluations and end, and the privacy that they cost."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from sparsona.data.schema.schema import Schema
from sparsona.engines.network.carrier import Answer
from sparsona.engines.network.consent import Rules
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.heads import LARGEST, Finish, Finished, NeedsReference, TurnOrder, TurnReply, told_ledger
from sparsona.engines.network.memory import NodeMemory
from sparsona.engines.network.own_data import OwnData
from sparsona.engines.network.setup import outputs_of
from sparsona.errors import InputError, MissingReference, WireError
from sparsona.experiment import Experiment, to_toml
from sparsona.export.files import ModelCard, layers, model_bytes
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, JobKind, Outcome, ScoredModel, Scores, Worker
from sparsona.files import write_atomically
from sparsona.layout import Layout
from sparsona.message import Message, Stamp
from sparsona.method import ClientId
from sparsona.privacy.ledger import OwnerLedger
from sparsona.privacy.mechanism import BudgetSpent, Meter
from sparsona.runs.answers import write_answers
from sparsona.runs.clients import ExpertScore, expert_sentence
from sparsona.runs.names import file_stem
from sparsona.runs.state import digest
from sparsona.training.adapters import TrainedPart
from sparsona.version import __version__
from sparsona.wire import Ledger, encode
from sparsona.words import counted


def description_of(own: OwnData) -> tuple[Head, bytes]:
    """Return the head and the frame that describe a node's data at the start."""
    description, published = own.description(), own.published()
    frame = None if description is None else encode(description)
    head: Head = {
        "model": own.data.model,
        "sizes": own.sizes,
        "published": None if published is None else published.to_json(),
        "ledger": told_ledger(Ledger() if frame is None else frame.ledger),
    }
    return head, b"" if frame is None else frame.data


Tells: TypeAlias = tuple[tuple[bool, bool], ...]
"""Per metric: True if its scores on test rows and on validation rows may be sent."""


def may_tell(setup: Setup, client: ClientId, least: int) -> Tells:
    """Return which scores of a client may be sent: those of at least `least` rows.

    A metric that is computed per class needs at least `least` rows of every class that occurs.
    """
    split, targets = setup.federation.splits[client], setup.federation.data.targets
    parts = split.test, split.validation
    whole = tuple(len(part) >= least for part in parts)
    each = tuple(all((targets[p] == label).sum() >= least for label in np.unique(targets[p])) for p in parts)
    by_class = [one.by_class for one in setup.objective.metrics] or [False]
    return tuple((whole[0] and each[0], whole[1] and each[1]) if own else (whole[0], whole[1]) for own in by_class)


def reply_to_turn(outcome: Outcome, scores: bool, tells: Tells) -> Head:
    """Return the head of the reply to a turn; its body is the frame."""
    told = {
        point: tuple(
            _or_none(value) if allowed else None
            for pair, may in zip(((s.test, s.validation), *s.others.values()), tells, strict=True)
            for value, allowed in zip(pair, may, strict=True)
        )
        for point, s in outcome.scores.items()
    }
    done = TurnReply(
        ledger=told_ledger(outcome.frame.ledger),
        paper=outcome.paper,
        scores=told if scores else {},
        loss=_or_none(outcome.loss) if scores else None,
        seconds=outcome.seconds,
        flops=int(outcome.flops),
        samples=float(outcome.samples),
    )
    return done.head


def _or_none(value: float) -> float | None:
    return float(value) if abs(value) <= LARGEST else None  # excludes NaN, too


def model_file(
    client: ClientId, data: str, experiment: Experiment, setup: Setup, schema: Schema, outcome: Outcome
) -> bytes:
    """The client's own model as a file, with a card that says what it was trained on."""
    assert outcome.model is not None
    numbers, chain = outputs_of(schema), layers(setup.module)
    card = ModelCard(
        client,
        experiment.method,
        data,
        experiment.model,
        numbers,
        schema,
        chain,
        outcome.threshold,
        setup.objective.positive,
        TrainedPart(experiment.trainable, experiment.lora, experiment.base),
    )
    own = np.zeros(0, np.float32) if outcome.buffers is None else outcome.buffers
    return model_bytes(outcome.model, setup.task.layout, card, Layout.of_buffers(setup.module).named(own))


def report_of(
    client: ClientId,
    experiment: Experiment,
    setup: Setup,
    scores: Mapping[str, Scores],
    file: Path,
    experts: tuple[ExpertScore, ...] = (),
) -> str:
    first = setup.objective.metric_name
    rows = len(setup.federation.splits[client].test)
    pool = [expert_sentence(experts, scores["pre"].test, first, rows)] if experts and "pre" in scores else []
    measured = [
        (metric, point, value)
        for point, found in scores.items()
        for metric, value in ((first, found.test), *((name, test) for name, (test, _) in found.others.items()))
    ]
    lines = [
        f"{client}: {experiment.method}, {counted(experiment.rounds, 'round')}, {time.strftime('%Y-%m-%d %H:%M')}",
        f"model: {file.name}, {setup.task.layout.size} weights ({experiment.model})",
        *(f"{metric} ({point}) on this client's own test rows: {value:.4f}" for metric, point, value in measured),
        *(f"pool: {line}" for line in pool),
    ]
    return "\n".join(lines) + "\n"


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
            return NeedsReference().head, b""
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
        uses = ((kind, getattr(outcome.frame.ledger, kind)) for kind in ("header", "positions", "values"))
        log.info(
            "round %d: received %d bytes (%s), trained %.1f s, sent %d bytes (%s)",
            round,
            len(frame),
            ", ".join(down.parts) or "nothing",
            outcome.seconds,
            len(outcome.frame.data),
            ", ".join(f"{kind} {count}" for kind, count in uses if count) or "nothing",
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
