"""The owner's process on a node: torch, the data, the client's memory and the owner's rules live here.

It answers the messages of a carrier: a greeting with an experiment, the agreed schema, turns, and the end. It accepts
nothing that the owner has not allowed. Everything that leaves the machine is written into the owner's log.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparsona.data.dataset import Federation
from sparsona.data.schema.agreed import schema_of
from sparsona.data.schema.bounds import check_declared
from sparsona.data.schema.exchange import LIMIT
from sparsona.data.schema.schema import Schema
from sparsona.engines.network.answers import (
    Tells,
    description_of,
    kinds_of_bytes,
    may_tell,
    model_file,
    reply_to_turn,
    report_of,
)
from sparsona.engines.network.carrier import Answer, Body
from sparsona.engines.network.consent import Consent, Question, Terms, Waiting, rows_hash
from sparsona.engines.network.flower.started.sparsona_records import BadParcel, Head
from sparsona.engines.network.heads import (
    Agreed,
    Finish,
    Finished,
    Greeting,
    ModelReady,
    Proposal,
    TurnOrder,
    Whole,
    question,
)
from sparsona.engines.network.memory import MANIFEST, NodeMemory, check_rows
from sparsona.engines.network.own_data import AS_AGREED, SHARE, OwnData, OwnFormat, load_table, own_file, read_share
from sparsona.engines.network.rules import Rules, in_words
from sparsona.engines.network.setup import fingerprint, outputs_of, setup_of
from sparsona.errors import (
    DataError,
    InputError,
    MissingReference,
    RunError,
    SparsonaError,
    WireError,
    one_line,
)
from sparsona.experiment import Experiment, build, parsed, to_toml
from sparsona.federation.budget import mechanisms
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, ScoredModel, Worker
from sparsona.files import write_atomically
from sparsona.message import Message, Stamp
from sparsona.method import ClientId, Method
from sparsona.models._build import weights_of
from sparsona.privacy.ledger import OwnerLedger
from sparsona.privacy.mechanism import BudgetSpent, Meter
from sparsona.runs.answers import write_answers
from sparsona.runs.names import file_stem
from sparsona.runs.state import digest
from sparsona.version import __version__
from sparsona.wire import decode

log = logging.getLogger("sparsona.node")

CONSENT = "owner"
"""The folder of the owner's decisions, beside the folders of runs."""
MOST_AGREED = 2**26
"""Largest agreed schema in bytes."""


@dataclass
class Session:
    """A run that this node takes part in, from the agreement on. `known` are the last evaluated models.

    `tells`: per metric, True if there are enough test and validation rows to send its scores.
    """

    experiment: Experiment
    schema: Schema
    setup: Setup
    worker: Worker
    kept: NodeMemory
    most: int
    tells: Tells
    known: tuple[ScoredModel, ...] = ()


class Node:
    """One client's node. `folder` holds its memory, one folder per run.

    `written` is the format of its file if it differs from the experiment.
    """

    def __init__(
        self,
        client: ClientId,
        data: Path,
        folder: Path,
        rules: Rules,
        device: str = "cpu",
        written: OwnFormat = AS_AGREED,
        terms: Terms | None = None,
        base: str = "",
    ) -> None:
        self.client, self.rules, self._terms = client, rules, terms or Terms()
        self._folder, self._device, self._written, self._base = folder, device, written, base
        self._session: tuple[str, Session] | None = None
        self._own: tuple[str, OwnData] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._consent = Consent(folder / CONSENT)
        budget = () if rules.epsilon is None else (rules.epsilon, rules.delta)
        self._ledger = OwnerLedger(folder / CONSENT / "privacy.json", *budget)
        self._data, self._said = data, ""

    def answer(self, head: Head, body: Body) -> Answer:
        """Return the reply to one message. A problem becomes one line that says nothing about the data."""
        try:
            return self._answer(head, body)
        except ConnectionError:
            raise
        except Waiting as waiting:
            if str(waiting) != self._said:
                log.warning("%s", waiting)
            self._said = str(waiting)
            return {"kind": "waits"}, b""
        except BadParcel as error:
            log.error("a message is refused: %s", error)
            return {"kind": "error", "why": str(error)}, b""
        except DataError as error:
            log.error("%s", error)
            return {"kind": "error", "why": "the owner's data do not fit this experiment; its log says more"}, b""
        except SparsonaError as error:
            log.error("%s", error)
            return {"kind": "error", "why": str(error)}, b""
        except OSError as error:
            log.error("cannot read or write %s: %s", error.filename or "a file", error.strerror)
            return {"kind": "error", "why": "the owner's machine cannot read or write a file; its log says more"}, b""
        except Exception as error:
            log.exception("a message could not be answered")
            return {"kind": "error", "why": f"a {type(error).__name__}; the owner's log says more"}, b""

    def _answer(self, head: Head, body: Body) -> Answer:
        asked = question(head)
        if isinstance(asked, Proposal):
            return self._hello(asked)
        if isinstance(asked, Agreed):
            return self._agreed(asked, body)
        if isinstance(asked, TurnOrder):
            return self._turn(asked, body)
        return self._finish(asked, body) if isinstance(asked, Finish) else ({"kind": "pong"}, b"")

    def _hello(self, asked: Proposal) -> Answer:
        """Check the proposed experiment; reply with the sizes and, for a table, its description."""
        experiment, _ = _experiment(asked.experiment)
        log.info("the server proposes: %s", one_line(in_words(experiment)))
        own = self._allowed(asked.run, experiment)
        told, description = self._consent.answer(self._question(experiment), lambda: description_of(own))
        reply = Greeting(name=self.client, sparsona=__version__, scores=self.rules.scores, **told)
        log.info(
            "joined; told the server: %d, %d and %d rows to train, check and test%s; test scores are %s",
            *reply.sizes,
            f", a description of the columns ({len(description)} bytes)" if description else "",
            "sent" if self.rules.scores else "kept here",
        )
        return reply.head, description

    def _agreed(self, asked: Agreed, body: Body) -> Answer:
        """Check and keep the agreed schema and the clients' names: from now on turns can be taken."""
        run, clients = asked.run, asked.clients
        experiment, _ = _experiment(asked.experiment)
        if self.client not in clients:
            raise WireError(f"{self.client} is not among the clients of this run")
        own = self._allowed(run, experiment)
        folder, frame = self._folder / run, body(MOST_AGREED)
        self._prepared(own, frame, experiment)
        folder.mkdir(exist_ok=True)
        if (folder / MANIFEST).exists():
            self._check_same(folder, experiment, clients, frame)
        write_atomically(folder / "agreed", frame)
        write_atomically(folder / "clients", json.dumps(clients))
        write_atomically(folder / "experiment.toml", to_toml(experiment))
        self._session = None
        session = self._of(run)
        return ModelReady(fingerprint=fingerprint(session.setup)).head, b""

    def _turn(self, asked: TurnOrder, body: Body) -> Answer:
        session = self._of(asked.run)
        frame = body(session.most)
        job = replace(_job(self.client, asked, frame, session.known), score=asked.score, fine_tune=asked.fine_tune)
        try:
            down = session.worker.received(job)
        except MissingReference:
            log.info("round %d: a downlink refers to one that is not here, asked for the whole", job.stamp.round + 1)
            return Whole().head, b""
        if down.stamp.order != job.stamp.order:
            raise WireError("the head and the frame of an order name different rounds")
        order, fits = down.stamp.order, job.kind == "fit"
        rounds = session.setup.task.rounds
        if order[0] > rounds:
            raise WireError(f"round {order[0] + 1} is not one of the {rounds} that were agreed on")
        if not fits:
            session.kept.count_scored(rounds)
            log.info("round %d: evaluates a model for the server", order[0] + 1)
        if fits:
            known = session.kept.answered(order, frame)
            if known is not None:
                log.info("round %d: the same order again, the same reply again", order[0] + 1)
                return known
            session.kept.roll_back(order)
        memory, outcome = session.worker.run(job, session.kept.memory, self._meter(asked.run, session, job, down))
        if outcome.refused:
            raise BudgetSpent(outcome.refused)
        session.known = outcome.known
        # The duration of a turn depends on the sampled rows, which are secret.
        told = outcome if session.setup.privacy is None else replace(outcome, seconds=0.0)
        reply = reply_to_turn(told, self.rules.scores, session.tells)
        if fits:
            session.kept.record(order, frame, memory, reply, outcome.frame.data)
            session.kept.hold(down)
            log.info(
                "round %d: received %d bytes (%s), trained %.1f s, sent %d bytes (%s)",
                order[0] + 1,
                len(frame),
                ", ".join(down.parts) or "nothing",
                outcome.seconds,
                len(outcome.frame.data),
                ", ".join(f"{k} {v:.0f}" for k, v in kinds_of_bytes(outcome).items()) or "nothing",
            )
            self._log_budget(asked.run, session)
        elif job.writes:
            session.kept.keep_models(memory)
        return reply, outcome.frame.data

    def _meter(self, run: str, session: Session, job: Job, down: Message) -> Meter | None:
        """Return the meter of a turn, which charges the owner's ledger; None without a privacy budget.

        A turn is identified by everything that its answer depends on. A different turn gets its own queries, and so its
        own noise. If two answers had the same noise, their difference would have none.
        """
        if session.setup.privacy is None:
            return None
        if job.kind == "trial" or job.fine_tune:
            raise InputError(
                "with a privacy budget this node trains in its turns only: set evaluation.post=participants, and leave "
                "evaluation.ft out"
            )
        order, parts = repr((job.kind, job.stamp.order, down.stamp)), digest({"parts": dict(down.parts)})
        turn = order, parts, session.kept.digest, session.kept.rows, to_toml(session.experiment)
        first, charge = self._ledger.begin(run, session.setup.privacy[self.client], "\n".join(turn).encode())
        return session.worker.meter(self.client, first, charge)

    def _log_budget(self, run: str, session: Session) -> None:
        if session.setup.privacy is not None:
            log.info(
                "privacy: this run has spent epsilon %.3f of its %.3f; all runs have reserved %.3f of %g",
                self._ledger.spent(run),
                session.setup.privacy[self.client].epsilon(session.setup.privacy[self.client].most),
                self._ledger.reserved[0],
                self._ledger.epsilon,
            )

    def _finish(self, asked: Finish, body: Body) -> Answer:
        """Write the client's model and report here, and reply with the hash of its memory."""
        session = self._of(asked.run)
        job = replace(_job(self.client, asked, body(session.most), session.known), score=True, keep_model=True)
        meter = self._meter(asked.run, session, job, session.worker.received(job))
        _, outcome = session.worker.run(job, session.kept.memory, meter)
        assert outcome.model is not None
        setup, experiment = session.setup, session.experiment
        model = model_file(self.client, self._data.name, experiment, setup, session.schema, outcome)
        file = self._folder / f"{file_stem(self.client)}.safetensors"
        write_atomically(file, model)
        if outcome.answers is not None:
            write_answers(self._folder, {self.client: outcome.answers})
        report = report_of(self.client, experiment, setup, outcome.scores, file, outcome.experts)
        write_atomically(self._folder / "report.txt", report)
        log.info("the run is over: the model is in %s and %s", file, "was sent" if self.rules.model else "nowhere else")
        return Finished(memory=session.kept.digest).head, model if self.rules.model else b""

    def _allowed(self, run: str, experiment: Experiment) -> OwnData:
        """Return the owner's data, if the owner allows the experiment and the run did not begin with other rows."""
        self.rules.check(experiment)
        self._consent.count(run, self.rules.most_proposals)
        question = self._question(experiment)
        check_rows(self._folder / run, self.client, question.fingerprint)
        own = self._loaded(question)
        self.rules.check_epochs(experiment, own.sizes[0])
        if own.data.rows is not None and (experiment.privacy.is_on or self.rules.epsilon is not None):
            check_declared(own.data.rows)
        if ignored := self._terms.ignored(experiment):
            log.info("the owner decides on the split of its rows; without effect here: %s", ", ".join(ignored))
        return own

    def _loaded(self, question: Question) -> OwnData:
        """Return the owner's data. A table is read only after the owner has accepted the question.

        An error may name a value of a row. So each becomes a `DataError`, whose text is not sent to the server.
        """
        file = own_file(self._data, self.client)
        share = file.name.endswith(SHARE)
        if not share:
            agreed = self._terms.columns
            self._consent.check(question, None if agreed is None else self._written.applied(agreed))
        if self._own is None or self._own[0] != question.fingerprint:
            try:
                load = read_share if share else partial(load_table, question=question, consent=self._consent)
                own = load(file, self.client)
            except InputError as error:
                raise DataError(str(error)) from None
            if own.sizes[0] < self.rules.least_rows:
                raise DataError(f"{self.client} has {own.sizes[0]} rows to train on, fewer than --least-rows")
            self._own = question.fingerprint, own
            for line in own.doubts(question):
                log.warning("%s", line)
        return self._own[1]

    def _question(self, experiment: Experiment) -> Question:
        """Return the question that an experiment asks about the owner's current file."""
        rows, terms = rows_hash(own_file(self._data, self.client)), self._terms
        columns = self._written.applied(experiment.columns)
        return Question(rows, columns, terms.split, terms.seed, self.rules.least_rows)

    def _prepared(self, own: OwnData, frame: bytes, experiment: Experiment) -> tuple[Schema, Federation]:
        """Return the agreed schema and the owner's samples.

        Refuses a schema that does not fit the owner's rows. A model that is too large is refused before it is built,
        and before the agreement is kept.
        """
        published = own.published()
        if published is not None and frame:
            raise WireError("the data came ready, and need no other schema")
        agreed = schema_of(decode(frame, LIMIT)) if published is None else published
        schema, federation = own.prepared(agreed)
        size = weights_of(experiment.model, schema.input_shape, outputs_of(schema), schema.vocabulary)
        if size > self.rules.most_weights:
            raise InputError(f"the owner allows {self.rules.most_weights} weights, not {size}")
        return schema, federation

    def _check_same(self, folder: Path, experiment: Experiment, clients: tuple[ClientId, ...], frame: bytes) -> None:
        """Refuse another agreement for a run that has begun: its turns would be other questions about the same rows."""
        before, _ = _experiment((folder / "experiment.toml").read_text(encoding="utf-8"))
        there = _clients(folder)
        if experiment.same_work(before) or clients != there or frame != (folder / "agreed").read_bytes():
            raise WireError("this run has begun with other settings: choose another --name")

    def _of(self, run: str) -> Session:
        """Return the session of a run; after a restart it is rebuilt from the files on disk."""
        if self._session is not None and self._session[0] == run:
            return self._session[1]
        folder = self._folder / run
        if not (folder / "experiment.toml").exists():
            raise WireError("this node has not agreed to that run")
        experiment, method = _experiment((folder / "experiment.toml").read_text(encoding="utf-8"))
        clients = _clients(folder)
        try:
            own, frame = self._allowed(run, experiment), (folder / "agreed").read_bytes()
        except Waiting as waiting:
            raise DataError(str(waiting)) from None
        schema, federation = self._prepared(own, frame, experiment)
        # Each run has its own randomness: the same order of rows in batches of 30 and of 31 would reveal one row.
        chance = self._consent.chance(f"turns of {run}", self._terms.seed)
        bounds = self.rules.most_epochs, self.rules.least_rows
        setup = setup_of(experiment, method, schema, clients, federation, self._device, *bounds, chance, self._base)
        if experiment.privacy.is_on or self.rules.epsilon is not None:
            how = experiment.evaluation, experiment.schedule.sample
            own_plan = self._ledger.planned(run, experiment.privacy, lambda s: mechanisms(setup, s, *how)[self.client])
            setup = replace(setup, privacy={self.client: own_plan})
        asked, fresh = self._question(experiment).fingerprint, ClientMemory.fresh(setup, self.client)
        kept = NodeMemory(folder, fresh, self.client, asked)
        worker = Worker(setup, kept.references)
        tells = may_tell(setup, self.client, self.rules.least_rows)
        self._session = run, Session(experiment, schema, setup, worker, kept, setup.limit().bytes, tells)
        return self._session[1]


def _experiment(text: str) -> tuple[Experiment, Method[Any, Any]]:
    return build(parsed(text, "the server's experiment"), "the server's experiment")


def _clients(folder: Path) -> tuple[ClientId, ...]:
    """Return the agreed clients of a run."""
    try:
        return tuple(map(str, json.loads((folder / "clients").read_bytes())))
    except (ValueError, TypeError, RecursionError):
        raise RunError(f"{folder / 'clients'} is damaged: start the node with another --state") from None


def _job(client: ClientId, asked: TurnOrder | Finish, body: bytes, known: tuple[ScoredModel, ...]) -> Job:
    kind = asked.job if isinstance(asked, TurnOrder) else "personal"
    return Job(kind, client, Stamp(asked.round, asked.phase, None), (body,), known=known, best_round=asked.best_round)
