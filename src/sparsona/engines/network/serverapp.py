"""The run on the organiser's machine: greet the nodes, agree on the schema, drive the rounds, sum up."""

from __future__ import annotations

import json
import logging
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sparsona.base import base_hash, is_file
from sparsona.data.schema.agreed import schema_of
from sparsona.data.schema.exchange import LIMIT, Agreement, agree
from sparsona.data.schema.schema import Schema
from sparsona.data.schema.told import told_schema
from sparsona.engines.network.carrier import Carrier
from sparsona.engines.network.engine import MessageExchange, NetworkEngine, PendingMessage
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.heads import (
    Agreed,
    Finish,
    Finished,
    Greeting,
    ModelReady,
    Proposal,
    answer,
    greeting,
    ledger_of,
)
from sparsona.engines.network.setup import RealTime, check_networkable, fingerprint, setup_of, without_data
from sparsona.errors import InputError, RunError, WireError, one_line, printable
from sparsona.experiment import Experiment, build, parsed, read, to_toml
from sparsona.export.files import model_of
from sparsona.federation.assembly import assemble
from sparsona.federation.rounds import Rounds
from sparsona.federation.setup import Setup
from sparsona.files import json_of, read_regular, write_atomically
from sparsona.method import ClientId
from sparsona.runs import artefacts
from sparsona.runs.about import FILE as ABOUT
from sparsona.runs.about import About, ClientData, environment, read_about, write_about
from sparsona.runs.clients import write_clients
from sparsona.runs.directory import RunDirectory
from sparsona.runs.names import file_stem
from sparsona.runs.records import RoundReport
from sparsona.summary import client_scores, summary_of, whole_digest
from sparsona.system import peak_rss_kb
from sparsona.terminal import LineFormatter, PlainConsole
from sparsona.training.determinism import make_deterministic
from sparsona.wire import Ledger, decode, encode
from sparsona.words import counted

log = logging.getLogger(__name__)
T = TypeVar("T")

GREETINGS = "greetings.json"
OWNERS = "(the owners' own)"
DEADLINE = 3600.0
ENDING = 30.0
"""Seconds that an earlier process of the same run has to end."""


MAX_WEIGHT = 10.0
"""In a mean no client counts more than so many times the median client: nothing but its word is known of its rows."""


@dataclass(frozen=True)
class Joined:
    """A node that takes part: what it has told at the start, checked."""

    told: Greeting
    published: Schema | None
    description: bytes
    ledger: Ledger

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Its rows to train, check and test."""
        return self.told.sizes


class NetworkRun:
    """One run, begun or resumed, in a run directory on the organiser's machine."""

    def __init__(self, carrier: Carrier, home: Path, text: str, name: str, patience: float) -> None:
        self._carrier, self._text, self._patience = carrier, text, patience
        self._folder = RunDirectory(home / "runs" / file_stem(name))
        self._run = ""

    def execute(self) -> dict[str, Any]:
        experiment, _ = build(parsed(self._text, "the experiment"), "the experiment")
        check_networkable(experiment)
        resume = self._folder.experiment_file.exists()
        experiment = experiment.model_copy(update={"data": OWNERS, "engine": "network"})
        # The loop of a server that was killed may still be ending.
        with self._folder.open(to_toml(experiment), lambda file: self._same(experiment, file), resume, ENDING):
            self._run = self._identity()
            return self._run_rounds(experiment, resume)

    def _same(self, experiment: Experiment, file: Path) -> str:
        """The experiment of a run that is there, if it is this one: what the nodes decided is not compared."""
        there, _ = build(read(file), str(file))
        decided = {"clients": there.clients} | ({"model": there.model} if experiment.model == "auto" else {})
        decided |= {"base": there.base} if is_file(experiment.base) or not experiment.base else {}
        setting = experiment.model_copy(update=decided).same_work(there)
        if setting is None and experiment.rounds < there.rounds:
            setting = "rounds"
        if setting is not None:
            raise RunError(f"this run belongs to another experiment ({setting} differs): choose another --name")
        return file.read_text(encoding="utf-8")

    def _identity(self) -> str:
        """The run's name among the nodes, the same after a crash."""
        file = self._folder.path / "run.id"
        if not file.exists():
            write_atomically(file, uuid.uuid4().hex)
        return file.read_text(encoding="ascii")

    def _run_rounds(self, experiment: Experiment, resume: bool) -> dict[str, Any]:
        make_deterministic()
        post = MessageExchange(self._carrier)
        greetings = self._greet(post, self._wanted(self._carrier.clients), experiment)
        clients = tuple(sorted(greetings))
        if experiment.model == "auto":
            experiment = experiment.model_copy(update={"model": _common_model(greetings)})
        experiment = experiment.model_copy(
            update={"clients": len(clients), "schedule": experiment.schedule.among(clients)}
        )
        schema, frame = _agreed(greetings)
        _, method = build(experiment.model_dump(), "the experiment")
        federation = without_data(schema, {client: one.sizes for client, one in greetings.items()})
        made = setup_of(experiment, method, schema, clients, federation)
        setup = replace(made, max_weight=MAX_WEIGHT)
        experiment = experiment.model_copy(update={"base": base_hash(made.module)})
        self._folder.write_experiment(to_toml(experiment))
        self._tell(post, setup, experiment, frame)
        agreement = Agreement(
            dict.fromkeys(clients, schema),
            sum((one.ledger for one in greetings.values()), Ledger()),
            sum((frame[1] for _ in clients), Ledger()) if frame[0] else Ledger(),
        )
        self._keep(greetings)
        write_about(self._folder.path, _about(setup, schema, greetings))
        schedule = experiment.schedule
        silent = frozenset(client for client, one in greetings.items() if not one.told.scores)
        engine = NetworkEngine(setup, post, self._run, schedule.deadline or DEADLINE, schedule.window, silent)
        try:
            rounds = assemble(
                setup,
                engine,
                RealTime(schedule),
                experiment.evaluation,
                records=self._folder.records,
                checkpoint=self._folder.checkpoint,
                fewest=experiment.split.fewest,
            )
            post.on_left_out = rounds.leave_out
            if resume:
                rounds.resume()
            rounds.run(lambda report: _say(report, experiment.rounds, setup.objective.metric_name))
            return self._finish(experiment, setup, rounds, post, agreement)
        finally:
            engine.close()

    @property
    def _begun(self) -> bool:
        """Whether all clients have agreed: the run can do without one of them from then on."""
        return (self._folder.path / ABOUT).exists()

    def _wanted(self, registered: Sequence[ClientId]) -> list[ClientId]:
        """The clients of this run: all that are registered when it begins, and the same when it goes on."""
        if not self._begun:
            return sorted(registered)
        clients = sorted(read_about(self._folder.path).clients)
        gone = [client for client in clients if client not in registered]
        if gone:
            raise RunError(f"{', '.join(gone)} took part and is not registered any more: choose another --name")
        return clients

    def _keep(self, greetings: Mapping[ClientId, Joined]) -> None:
        """Write what the clients have told at the start: a run that goes on is the same, whatever they say then."""
        told = {client: [one.told.head, one.description.hex()] for client, one in greetings.items()}
        write_atomically(self._folder.path / GREETINGS, json.dumps(told))

    def _kept(self) -> dict[ClientId, Joined]:
        """What the clients have told when the run began; nothing before that."""
        file = self._folder.path / GREETINGS
        if not (self._begun and file.exists()):
            return {}
        try:
            told = json_of(read_regular(file))
            return {client: _joined(client, head, bytes.fromhex(body)) for client, (head, body) in told.items()}
        except (WireError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise RunError(f"{file} is damaged ({printable(error, 200)}): choose another --name") from None

    def _greet(self, post: MessageExchange, clients: list[ClientId], experiment: Experiment) -> dict[ClientId, Joined]:
        """Every client's greeting. One that is absent or sends no valid greeting is named: no run begins without it.

        A run that goes on takes what was told when it began. So no client can stop it, or change what was agreed on.
        """
        until = time.monotonic() + self._patience
        named = experiment.model_copy(update={"base": ""} if is_file(experiment.base) else {})
        head = Proposal(run=self._run, experiment=to_toml(named)).head
        found: dict[ClientId, Joined] = {}
        refused: dict[ClientId, str] = {}
        print(f"waiting for {one_line(', '.join(clients))}", flush=True)
        post.send(PendingMessage(client, head, b"", until) for client in clients)
        for one, reply, body in post.receive(until):
            try:
                found[one.client] = _joined(one.client, reply, body)
            except WireError as error:
                refused[one.client] = str(error)
                log.warning("%s cannot take part: %s", one.client, error)
                continue
            rows = counted(found[one.client].sizes[0], "row")
            print(f"{one_line(one.client)} is here: {rows} to train on", flush=True)
        missing = [client for client in clients if client not in found and client not in refused]
        if kept := self._kept():
            for client in (*refused, *missing):
                log.warning("the run goes on; %s takes part again as soon as it answers its orders", client)
            return kept
        if refused:
            raise _lacking(refused)
        if missing:
            raise RunError(f"{', '.join(missing)} did not join; their logs say why. Start them, and deploy again")
        return found

    def _tell(self, post: MessageExchange, setup: Setup, experiment: Experiment, frame: tuple[bytes, Ledger]) -> None:
        """Tell all nodes what was agreed on, and compare the models that they make of it."""
        until = time.monotonic() + self._patience
        head = Agreed(run=self._run, experiment=to_toml(experiment), clients=setup.task.clients).head
        post.send(PendingMessage(client, head, frame[0], until) for client in setup.task.clients)
        mine, ready = fingerprint(setup), set()
        refused: dict[ClientId, str] = {}
        for one, reply, _ in post.receive(until):
            try:
                if answer(reply, ModelReady).fingerprint != mine:
                    raise WireError("it makes another model of the same experiment: install the same versions")
                ready.add(one.client)
            except WireError as error:
                refused[one.client] = str(error)
        missing = [client for client in setup.task.clients if client not in ready and client not in refused]
        if self._begun:
            for client in (*refused, *missing):
                log.warning("%s is not ready: %s", client, refused.get(client, "it did not answer"))
            return
        if refused:
            raise _lacking(refused)
        if missing:
            raise RunError(f"{', '.join(missing)} did not get ready; their logs say why")

    def _finish(
        self, experiment: Experiment, setup: Setup, rounds: Rounds, post: MessageExchange, agreement: Agreement
    ) -> dict[str, Any]:
        """Let the nodes write their models; a model is kept here only if its owner has sent it."""
        until = time.monotonic() + (experiment.schedule.deadline or DEADLINE)
        list(post.receive(time.monotonic()))
        for job in rounds.last_jobs():
            round, phase = job.stamp.order
            head = Finish(run=self._run, round=round, phase=phase, best_round=job.best_round).head
            post.send([PendingMessage(job.client, head, b"".join(job.down), until, job)])
        digests = dict.fromkeys(setup.task.clients, "absent")
        for one, reply, body in post.receive(until):
            try:
                memory = answer(reply, Finished).memory
                if body:
                    model_of(body, ".safetensors", f"the model of {one.client}")
                    self._folder.save_model(one.client, body)
                digests[one.client] = memory
            except (WireError, InputError) as error:
                post.leave_out(one, str(error))
        clients = client_scores(setup, rounds.run_log, experiment.split.fewest)
        peak = peak_rss_kb() / 1024
        whole = whole_digest(rounds.server, digests, experiment.base)
        summary = summary_of(experiment, setup, rounds, agreement, clients, whole, peak)
        artefacts.save(setup.method.artefacts(rounds.server), self._folder.path)
        write_clients(self._folder.clients_file, clients)
        self._folder.write_summary(summary)
        return summary


def _joined(client: ClientId, head: Head, body: bytes) -> Joined:
    told = greeting(head)
    if told.name != client:
        raise WireError(f"the node of its key calls itself {one_line(told.name[:80])!r}")
    published = None if told.published is None else told_schema(told.published)
    if (published is None) != bool(body):
        raise WireError("it tells neither a schema nor a description of its columns, or both")
    return Joined(told, published, body, ledger_of(told.ledger, body))


def _lacking(refused: Mapping[ClientId, str]) -> RunError:
    """The run cannot begin; which client is the cause, and how to begin without it."""
    whom = "; ".join(f"{client} cannot take part: {reason}" for client, reason in sorted(refused.items()))
    return RunError(f"{whom}. To run without it, start sparsona server without its key, and deploy again")


def _common_model(joined: Mapping[ClientId, Joined]) -> str:
    return _shared({client: one.told.model for client, one in joined.items()}, "suggest another model: name one")


def _shared(found: Mapping[ClientId, T], how: str) -> T:
    """What all clients say, or an error that names the few who say otherwise."""
    several = list(found.values())
    usual = max(several, key=several.count)
    others = sorted(client for client, one in found.items() if one != usual)
    if others:
        raise RunError(f"the data of {', '.join(others)} {how}")
    return usual


def _agreed(joined: Mapping[ClientId, Joined]) -> tuple[Schema, tuple[bytes, Ledger]]:
    """The schema of all, and the frame that tells it; none where the data came ready."""
    how = "are of another kind than the others': give all the same columns, or shares of one set"
    ready = _shared({client: one.published for client, one in joined.items()}, how)
    if ready is not None:
        return ready, (b"", Ledger())
    frame = encode(agree({client: decode(one.description, LIMIT) for client, one in joined.items()}))
    return schema_of(decode(frame.data, LIMIT)), (frame.data, frame.ledger)


def _about(setup: Setup, schema: Schema, greetings: Mapping[ClientId, Joined]) -> About:
    clients = {client: ClientData(*one.sizes) for client, one in greetings.items()}
    objective = setup.objective
    return About(
        objective.metric_name,
        objective.higher_is_better,
        setup.task.layout.size,
        clients,
        schema.classes,
        environment(),
    )


def _say(report: RoundReport, rounds: int, metric: str) -> None:
    scores = ", ".join(
        f"{point} {found['mean']:.4f}" for point, found in report.scores.items() if found.get("mean") is not None
    )
    print(
        f"round {report.round}/{rounds}: {counted(report.took_part, 'client')}, {report.up.total} bytes up, "
        f"{report.down.total} down{f', {metric} {scores}' if scores else ''}",
        flush=True,
    )


def _log_to_output() -> None:
    """What the loop notes goes to the organiser with the lines of the rounds; what others note stays where it is."""
    notes = logging.getLogger("sparsona")
    notes.setLevel(logging.INFO)
    notes.propagate = False
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter())
    notes.addHandler(handler)


def carry_out(run: NetworkRun) -> None:
    """Execute a run, and print its rounds and results on standard output."""
    _log_to_output()
    began = time.monotonic()
    summary = run.execute()
    from sparsona.report import console as show
    from sparsona.report.words import runaway

    out = PlainConsole(width=120)
    out.print(show.closing(summary))
    out.print(show.traffic(summary), soft_wrap=True)
    if warning := runaway(summary["loss"]):
        out.print(warning, soft_wrap=True, highlight=False)
    print(f"digest {summary['digest']}, {time.monotonic() - began:.1f} s", flush=True)
