"""The owner's process on a node: torch, the data, the client's memory and the owner's rules live here.

It answers the messages of a carrier: a greeting with an experiment, the agreed schema, turns, and the end. It accepts
nothing that the owner has not allowed. Everything that leaves the machine is written into the owner's log.
"""

import json
import logging
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from sparsona.data.dataset import Federation
from sparsona.data.schema.bounds import check_declared
from sparsona.data.schema.exchange import LIMIT, schema_of
from sparsona.data.schema.schema import Schema
from sparsona.engines.network.carrier import Answer, Body, OrderGuard
from sparsona.engines.network.consent import Consent, Question, Rules, Terms, Waiting, in_words, rows_hash
from sparsona.engines.network.flower.started.sparsona_records import BadParcel, Head
from sparsona.engines.network.heads import Agreed, Greeting, ModelReady, Ping, Proposal, TurnOrder, question
from sparsona.engines.network.memory import MANIFEST, NodeMemory, check_rows
from sparsona.engines.network.own_data import AS_AGREED, SHARE, OwnData, OwnFormat, load_table, own_file, read_share
from sparsona.engines.network.session import Session, description_of, may_tell
from sparsona.engines.network.setup import fingerprint, outputs_of, setup_of
from sparsona.errors import DataError, InputError, RunError, SparsonaError, WireError, one_line
from sparsona.experiment import Experiment, build, parsed, to_toml
from sparsona.federation.budget import mechanisms
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.worker import Worker
from sparsona.files import alone, write_atomically
from sparsona.method import ClientId, Method
from sparsona.models._build import weights_of
from sparsona.privacy.ledger import OwnerLedger
from sparsona.terminal import LineFormatter
from sparsona.version import __version__
from sparsona.wire import decode

log = logging.getLogger("sparsona.node")

RUNS, NUMBERS = "runs", "answered.json"
CONSENT = "owner"  # the folder of the owner's decisions, beside the folders of runs
MOST_AGREED = 2**26  # largest agreed schema in bytes


class Node:
    """One client's node; `folder` holds its memory. `written` is its file's format, if not the experiment's."""

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
        self._session: Session | None = None
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
            log.error("cannot read or write %s: %s", error.filename or self._folder, error.strerror)
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
        if isinstance(asked, Ping):
            return {"kind": "pong"}, b""
        session = self._of(asked.run)
        frame = body(session.most)
        if isinstance(asked, TurnOrder):
            return session.turn(asked, frame)
        return session.finish(asked, frame, self._folder, self._data.name)

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
            # other turns would be other questions about the same rows
            before, _ = _experiment((folder / "experiment.toml").read_text(encoding="utf-8"))
            same = clients == _clients(folder) and frame == (folder / "agreed").read_bytes()
            if experiment.same_work(before) or not same:
                raise WireError("this run has begun with other settings: choose another --name")
        write_atomically(folder / "agreed", frame)
        write_atomically(folder / "clients", json.dumps(clients))
        write_atomically(folder / "experiment.toml", to_toml(experiment))
        self._session = None
        session = self._of(run)
        return ModelReady(fingerprint=fingerprint(session.setup)).head, b""

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

    def _of(self, run: str) -> Session:
        """Return the session of a run; after a restart it is rebuilt from the files on disk."""
        if self._session is not None and self._session.run == run:
            return self._session
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
        own_terms, limit = (run, self.client, self.rules, self._ledger), setup.limit().bytes
        self._session = Session(*own_terms, experiment, schema, setup, worker, kept, limit, tells)
        return self._session


def _experiment(text: str) -> tuple[Experiment, Method[Any, Any]]:
    return build(parsed(text, "the server's experiment"), "the server's experiment")


def _clients(folder: Path) -> tuple[ClientId, ...]:
    """Return the agreed clients of a run."""
    try:
        return tuple(map(str, json.loads((folder / "clients").read_bytes())))
    except (ValueError, TypeError, RecursionError):
        raise RunError(f"{folder / 'clients'} is damaged: start the node with another --state") from None


class Connection(Protocol):
    """A node's connection to the server: by Flower, or through a mailbox."""

    @property
    def where(self) -> str:
        """Return the connection in words, for the owner."""

    def serve(self, guard: OrderGuard, state: Path, most_weights: int) -> None:
        """Answer messages through the guard until the process is ended. `state` is the node's own folder."""


@dataclass(frozen=True)
class Owner:
    """A node: its connection to the server, its rules, and the format of its file."""

    client: ClientId
    connection: Connection
    data: Path
    state: Path
    rules: Rules
    device: str = "cpu"
    written: OwnFormat = AS_AGREED
    terms: Terms = field(default_factory=Terms)
    base: str = ""  # the owner's file of frozen weights, if any

    def run(self) -> None:
        """Serve until the process is ended."""
        for path in (self.data, *([Path(self.base)] if self.base else [])):
            if not path.exists():
                raise InputError(f"there is no file {path}: check the path")
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o700)
        state = self.state.resolve()
        with alone(state / "lock", f"another sparsona node uses {state}: stop it, or choose another --state"):
            self._run(state)

    def _run(self, state: Path) -> None:
        _log_to(state / "node.log")
        log.info(
            "%s: %s; data %s; methods %s; at most %d epochs a round; test scores are %s; the model is %s",
            self.client,
            self.connection.where,
            self.data,
            ", ".join(self.rules.methods) or "any",
            self.rules.most_epochs,
            "sent" if self.rules.scores else "kept here",
            "sent at the end" if self.rules.model else "kept here",
        )
        if self.rules.epsilon is None:
            log.warning(
                "no privacy budget (--epsilon): an organiser that sends weights of its own making can read single rows "
                "from the replies; take part only if you trust the organiser (docs/privacy.md)"
            )
        data, runs = self.data.resolve(), state / RUNS
        node = Node(self.client, data, runs, self.rules, self.device, self.written, self.terms, self.base)
        self.connection.serve(OrderGuard(node, state / NUMBERS), state, self.rules.most_weights)


def accepted(state: Path, fingerprint: str) -> str:
    """Accept a server's question in the state folder of a node, which may be running; return the question in words."""
    if not (state / RUNS / CONSENT).is_dir():
        raise InputError(f"{state} is not the --state of a node: check the path")
    return Consent(state / RUNS / CONSENT).accept(fingerprint)


class LogFile(logging.FileHandler):
    """A log file; if it cannot be written, standard error says so in one line."""

    def handleError(self, record: logging.LogRecord) -> None:
        print(f"sparsona: cannot write {self.baseFilename}: {sys.exception()}", file=sys.stderr, flush=True)


def _log_to(file: Path) -> None:
    """Log the node's work and everything that leaves it, on the screen and in a file for the owner."""
    log.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(), LogFile(file)):
        handler.setFormatter(LineFormatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(handler)
