"""The run on the organiser's machine: greet the nodes, agree on the schema, drive the rounds, write the summary."""

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
from sparsona.data.schema.exchange import LIMIT, Agreement, agree, schema_of
from sparsona.data.schema.schema import Schema, told_schema
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
from sparsona.errors import DataError, InputError, RunError, WireError, one_line, printable
from sparsona.experiment import Experiment, build, parsed, read, to_toml
from sparsona.export.files import model_of
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.setup import Setup
from sparsona.files import json_of, read_regular, write_atomically
from sparsona.message import Message
from sparsona.method import ClientId
from sparsona.report.loggers import LOGGERS, logged
from sparsona.runs import artefacts
from sparsona.runs.about import FILE as ABOUT
from sparsona.runs.about import About, ClientData, environment, read_about, write_about
from sparsona.runs.clients import write_clients
from sparsona.runs.directory import GREETINGS, RunDirectory
from sparsona.runs.names import file_stem
from sparsona.runs.records import RoundReport
from sparsona.summary import client_scores, summary_of, whole_digest
from sparsona.system import peak_rss_kb
from sparsona.terminal import LineFormatter, PlainConsole
from sparsona.training.determinism import make_deterministic
from sparsona.wire import Ledger, decode, encode
from sparsona.words import counted

log = logging.getLogger(__name__)

OWNERS = "(the owners' own)"
DEADLINE = 3600.0
ENDING = 30.0  # seconds that an earlier process of the same run has to end
MAX_WEIGHT = 10.0
"""Limit on a client's weight in a mean, as a multiple of the median client: its number of rows is only a claim."""
T = TypeVar("T")


class ClientsMissing(RunError):
    """The clients that cannot take part in a run that has not begun, and why."""

    def __init__(self, reasons: Mapping[ClientId, str]) -> None:
        whom = "; ".join(f"{client} cannot take part: {reason}" for client, reason in sorted(reasons.items()))
        super().__init__(f"{whom}. Mend that and deploy again, or begin with the other clients: --fewest N")
        self.reasons = reasons


@dataclass(frozen=True)
class Joined:
    """A client that takes part, with its checked greeting."""

    told: Greeting
    published: Schema | None
    description: bytes
    ledger: Ledger


def joined(client: ClientId, head: Head, body: bytes) -> Joined:
    """Check a client's greeting. Raises `WireError` if anything in it cannot be used."""
    told = greeting(head)
    if told.name != client:
        raise WireError(f"the node of its key calls itself {one_line(told.name[:80])!r}")
    published = None if told.published is None else told_schema(told.published)
    if (published is None) != bool(body):
        raise WireError("it tells neither a schema nor a description of its columns, or both")
    return Joined(told, published, body, ledger_of(told.ledger, body))


def common_model(clients: Mapping[ClientId, Joined]) -> str:
    """Return the model that suits all clients' data."""
    found = {client: one.told.model for client, one in clients.items()}
    return _shared(found, "its data suggest another model than the others': name one")


def agreed_schema(clients: Mapping[ClientId, Joined]) -> tuple[Schema, tuple[bytes, Ledger]]:
    """Return the common schema of all clients, and the frame that carries it; the frame is empty for shares."""
    how = "its data are of another kind than the others': give all the same columns, or shares of one set"
    ready = _shared({client: one.published for client, one in clients.items()}, how)
    if ready is not None:
        return ready, (b"", Ledger())
    described: dict[ClientId, Message] = {}
    refused: dict[ClientId, str] = {}
    for client, one in clients.items():
        try:
            described[client] = decode(one.description, LIMIT)
        except WireError as error:
            refused[client] = str(error)
    if refused:
        raise ClientsMissing(refused)
    try:
        frame = encode(agree(described))
    except (DataError, WireError) as error:
        blamed = _to_blame(described, str(error))
        if blamed is None:
            raise
        raise ClientsMissing({blamed: str(error)}) from None
    return schema_of(decode(frame.data, LIMIT)), (frame.data, frame.ledger)


def _shared(found: Mapping[ClientId, T], how: str) -> T:
    """Return the value of most clients; raise `ClientsMissing` with the clients that differ."""
    several = list(found.values())
    usual = max(several, key=several.count)
    others = dict.fromkeys((client for client, one in found.items() if one != usual), how)
    if others:
        raise ClientsMissing(others)
    return usual


def _to_blame(described: Mapping[ClientId, Message], problem: str) -> ClientId | None:
    """Return the only named client without which the others agree; None if there is not exactly one.

    A problem between two clients names both, and a client may write another one's name into its columns.
    """
    named = [client for client in described if f"client {client!r}" in problem]
    if len(named) == 1 or len(described) < 3:
        return named[0] if len(named) == 1 else None
    found = []
    for client in named:
        try:
            agree({other: one for other, one in described.items() if other != client})
        except (DataError, WireError):
            continue
        found.append(client)
    return found[0] if len(found) == 1 else None


class NetworkRun:
    """One new or resumed run, in a run directory on the organiser's machine."""

    def __init__(self, carrier: Carrier, home: Path, text: str, name: str, patience: float, fewest: int = 0) -> None:
        """`patience`: seconds to wait for the clients. `fewest`: smallest number of clients to begin with; 0: all."""
        self._carrier, self._text, self._patience, self._fewest = carrier, text, patience, fewest
        self._folder = RunDirectory(home / "runs" / file_stem(name))
        self._run = ""

    def execute(self) -> dict[str, Any]:
        experiment, _ = build(parsed(self._text, "the experiment"), "the experiment")
        check_networkable(experiment)
        for name in experiment.report_to:
            LOGGERS.get(name)
        resume = self._folder.experiment_file.exists()
        experiment = experiment.model_copy(update={"data": OWNERS, "engine": "network"})
        # The loop of a server that was killed may still be ending.
        with self._folder.open(to_toml(experiment), lambda file: self._same(experiment, file), resume, ENDING):
            file = self._folder.path / "run.id"  # the run's name among the nodes, which survives a crash
            if not file.exists():
                write_atomically(file, uuid.uuid4().hex)
            self._run = file.read_text(encoding="ascii")
            return self._run_rounds(experiment, resume)

    def _same(self, experiment: Experiment, file: Path) -> str:
        """Return the text of an existing run's experiment, if it is this one; what the nodes decided may differ."""
        there, _ = build(read(file), str(file))
        decided = {"clients": there.clients} | ({"model": there.model} if experiment.model == "auto" else {})
        decided |= {"base": there.base} if is_file(experiment.base) or not experiment.base else {}
        setting = experiment.model_copy(update=decided).same_work(there)
        if setting is None and experiment.rounds < there.rounds:
            setting = "rounds"
        if setting is not None:
            raise RunError(f"this run belongs to another experiment ({setting} differs): choose another --name")
        return file.read_text(encoding="utf-8")

    def _run_rounds(self, proposed: Experiment, resume: bool) -> dict[str, Any]:
        make_deterministic()
        post = MessageExchange(self._carrier)
        greetings = self._greet(post, self._wanted(self._carrier.clients), proposed)
        while True:
            try:
                experiment, setup, schema, frame = self._agree(post, greetings, proposed)
                break
            except ClientsMissing as lacking:
                greetings = self._without(greetings, lacking)
        agreement = Agreement(
            dict.fromkeys(greetings, schema),
            sum((one.ledger for one in greetings.values()), Ledger()),
            sum((frame[1] for _ in greetings), Ledger()) if frame[0] else Ledger(),
        )
        kept = {client: [one.told.head, one.description.hex()] for client, one in greetings.items()}
        write_atomically(self._folder.path / GREETINGS, json.dumps(kept))
        sizes = {client: ClientData(*one.told.sizes) for client, one in greetings.items()}
        metric = setup.objective.metric_name, setup.objective.higher_is_better
        about = About(*metric, setup.task.layout.size, sizes, schema.classes, environment())
        write_about(self._folder.path, about)
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
            with logged(self._folder, experiment) as log_round:

                def told(report: RoundReport) -> None:
                    _say(report, experiment.rounds, setup.objective.metric_name)
                    log_round(report)

                rounds.run(told)
                return self._finish(experiment, setup, rounds, post, agreement)
        finally:
            engine.close()

    def _agree(
        self, post: MessageExchange, greetings: Mapping[ClientId, Joined], proposed: Experiment
    ) -> tuple[Experiment, Setup, Schema, tuple[bytes, Ledger]]:
        """Agree on the experiment, the model and the schema with these clients, or raise `ClientsMissing`."""
        clients = tuple(sorted(greetings))
        decided: dict[str, Any] = {"clients": len(clients), "schedule": proposed.schedule.among(clients)}
        if proposed.model == "auto":
            decided["model"] = common_model(greetings)
        experiment = proposed.model_copy(update=decided)
        schema, frame = agreed_schema(greetings)
        _, method = build(experiment.model_dump(), "the experiment")
        federation = without_data(schema, {client: one.told.sizes for client, one in greetings.items()})
        setup = replace(setup_of(experiment, method, schema, clients, federation), max_weight=MAX_WEIGHT)
        experiment = experiment.model_copy(update={"base": base_hash(setup.module)})
        self._folder.write_experiment(to_toml(experiment))
        self._tell(post, setup, experiment, frame)
        return experiment, setup, schema, frame

    def _without(self, greetings: Mapping[ClientId, Joined], lacking: ClientsMissing) -> dict[ClientId, Joined]:
        """Return the clients that are left, if they are enough to begin the run; else raise `lacking`."""
        left = {client: one for client, one in greetings.items() if client not in lacking.reasons}
        if not 0 < self._fewest <= len(left):
            raise lacking
        for client, reason in lacking.reasons.items():
            log.warning("the run begins without %s: %s", client, reason)
        return left

    @property
    def _begun(self) -> bool:
        """True if all clients have agreed: from then on the run continues without an absent one."""
        return (self._folder.path / ABOUT).exists()

    def _wanted(self, registered: Sequence[ClientId]) -> list[ClientId]:
        """Return the clients of this run: all that are registered when it begins, and the same when it resumes."""
        if not self._begun:
            return sorted(registered)
        clients = sorted(read_about(self._folder.path).clients)
        gone = [client for client in clients if client not in registered]
        if gone:
            raise RunError(f"{', '.join(gone)} took part and is not registered any more: choose another --name")
        return clients

    def _kept(self) -> dict[ClientId, Joined]:
        """Return the clients' greetings at the beginning of the run; empty before that."""
        file = self._folder.path / GREETINGS
        if not (self._begun and file.exists()):
            return {}
        try:
            told = json_of(read_regular(file))
            return {client: joined(client, head, bytes.fromhex(body)) for client, (head, body) in told.items()}
        except (WireError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise RunError(f"{file} is damaged ({printable(error, 200)}): choose another --name") from None

    def _greet(self, post: MessageExchange, clients: list[ClientId], experiment: Experiment) -> dict[ClientId, Joined]:
        """Return the clients' greetings; raise `ClientsMissing` if a needed one is absent or not valid.

        A resumed run uses the greetings from its beginning. So no client can stop it, or change the agreement.
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
                found[one.client] = joined(one.client, reply, body)
            except WireError as error:
                refused[one.client] = str(error)
                continue
            rows = counted(found[one.client].told.sizes[0], "row")
            print(f"{one_line(one.client)} is here: {rows} to train on", flush=True)
        refused |= post.unanswered([client for client in clients if client not in found and client not in refused])
        if kept := self._kept():
            for client, reason in refused.items():
                log.warning("%s takes part again as soon as it answers its orders: %s", client, reason)
            return kept
        return self._without(found, ClientsMissing(refused)) if refused else found

    def _tell(self, post: MessageExchange, setup: Setup, experiment: Experiment, frame: tuple[bytes, Ledger]) -> None:
        """Send the agreement to all nodes, and compare the models that they build from it."""
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
        silent = [client for client in setup.task.clients if client not in ready and client not in refused]
        refused |= post.unanswered(silent)
        if refused and not self._begun:
            raise ClientsMissing(refused)
        for client, reason in refused.items():
            log.warning("%s is not ready: %s", client, reason)

    def _finish(
        self, experiment: Experiment, setup: Setup, rounds: Rounds, post: MessageExchange, agreement: Agreement
    ) -> dict[str, Any]:
        """Let the nodes write their models; keep a model here only if its owner sends it."""
        until = time.monotonic() + (experiment.schedule.deadline or DEADLINE)
        list(post.receive(time.monotonic()))
        for job in rounds.last_jobs("personal", setup.task.clients):
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
    """Log Sparsona's lines to standard output, between the lines of the rounds; other logs stay as they are."""
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
