"""The invariants that every method, partition and model must keep; public, so that plug-ins can be held to them too.

>>> from sparsona.methods.fedavg import FedAvg
>>> check_method(FedAvg())
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import Dataset, Indices, Samples
from sparsona.engines.inprocess import InProcess
from sparsona.errors import ContractError, InputError, WireError
from sparsona.federation.delivery import BUFFERS
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.rounds import Rounds
from sparsona.federation.schedule import Plan, Sampled, Schedule
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.message import Message, Part, Sparse, Ternary, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.partition._split import federate
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.records import RunLog
from sparsona.runs.state import digest, pack, unpack, unpack_like
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.objective import classification
from sparsona.training.runner import channels_last
from sparsona.training.vector import Flat
from sparsona.wire import decode

ROUNDS = 3


def check_method(method: Method[Any, Any]) -> None:
    """Raise a ContractError that names the check and says what is wrong, if anything is."""
    before = _fields(method)
    with _check("declaration"):
        _declared(method)
    with _check("imports"):
        _imports(method)
    with _check("send"):
        _sends(method)
    with _check("a run of three clients"):
        reference = _run(method)
    with _check("states on disk"):
        _round_trips(reference)
    with _check("the same run twice"):
        _same("two runs of the same seed", reference, _run(method))
    with _check("replies in another order"):
        _same("replies in another order", reference, _run(method, engine=Backwards))
    with _check("a single client"):
        _run(method, clients=1, rounds=2)
    with _check("a sample of the clients"):
        _run(method, schedule=Sampled(sample=0.4))
    for number, script in enumerate(SCRIPTS, 1):
        with _check(f"lost, late and repeated messages, script {number}"):
            check_delivery(method, script)
    with _check("stop and resume"), tempfile.TemporaryDirectory() as folder:
        _run(method, checkpointer=Checkpointer(Path(folder)), stop=1)
        resumed = _run(method, checkpointer=Checkpointer(Path(folder)), resume=True)
        _same("a run that was stopped and resumed", reference, resumed)
    with _check("a new client"):
        _newcomer(reference)
    with _check("privacy"):
        _private(method)
    with _check("no memory in the method"):
        _unchanged(before, _fields(method))


@contextmanager
def _check(name: str) -> Iterator[None]:
    """Whatever goes wrong in this block is a ContractError that begins with the name of the check."""
    try:
        yield
    except ContractError as error:
        raise ContractError(f"{name}: {error}") from error
    except Exception as error:
        raise ContractError(f"{name}: {type(error).__name__}: {error}") from error


def _fields(method: Method[Any, Any]) -> dict[str, bytes]:
    """All that the method object holds, as bytes."""
    return {name: pickle.dumps(value) for name, value in vars(method).items()}


def _unchanged(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            raise ContractError(f"{name!r} of the method object has changed: what is remembered belongs into a state")


def tiny_setup(method: Method[Any, Any], clients: int = 3, rounds: int = ROUNDS) -> Setup:
    """A federation of a few small images per client, real enough for every method."""
    rng = np.random.default_rng(7)
    count, classes = 40 * max(clients, 2), 4
    labels = np.arange(count, dtype=np.int64) % classes
    centres = rng.uniform(0, 160, (classes, 1, 6, 6))
    inputs = np.clip(centres[labels] + rng.normal(0, 40, (count, 1, 6, 6)), 0, 255).astype(np.uint8)
    data = Dataset("tiny", inputs, labels, classes, mean=(0.3,), std=(0.3,))
    chance = Chance(11)
    federation = federate(data, "dirichlet-classes:1.0" if clients > 1 else "iid", clients, chance)
    with chance.torch("initial weights"):
        module = nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.ReLU(), nn.Linear(5, 4)
        )
    flat = Flat(module)
    names = tuple(sorted(federation.clients))
    task = Task(flat.layout, flat.read(), names, rounds, (1, 6, 6), classes, chance)
    return Setup(method, task, federation, module, classification(), TrainConfig(batch=16, lr=0.05))


class Backwards(InProcess):
    """Hands the outcomes over in reverse, as a network might."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        return iter(list(super().run(jobs))[::-1])


Event: TypeAlias = Literal["ok", "lost", "late", "later", "crashed", "absent", "twice"]
"""What becomes of one client's turn: its reply arrives, is lost, comes one or two rounds late; it dies before it
trains; it is not asked; or both its order and its reply are delivered twice."""

SCRIPTS: tuple[tuple[Mapping[ClientId, Event], ...], ...] = (
    ({"c1": "lost"}, {"c0": "late", "c1": "twice"}, {"c1": "lost", "c2": "crashed"}, {"c2": "lost"}, {}),
    ({"c0": "later", "c1": "twice"}, {"c1": "lost", "c2": "late"}, {"c1": "absent"}, {"c0": "lost"}, {"c0": "twice"}),
)
"""What :func:`check_method` tries: a mapping a round; whoever is not named answers in time."""


@dataclass(frozen=True)
class Scripted:
    """Everyone takes part, and fares as the script says; after its end all is well."""

    script: Sequence[Mapping[ClientId, Event]]

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        """The plan that the script has for this round."""
        events = self.script[round] if round < len(self.script) else {}

        def those(*kinds: Event) -> frozenset[ClientId]:
            return frozenset(client for client in idle if events.get(client, "ok") in kinds)

        delay = {client: 1 if events[client] == "late" else 2 for client in those("late", "later")}
        invited = tuple(sorted(set(idle) - those("absent")))
        return Plan(invited, those("crashed"), those("lost"), delay)


@dataclass
class Turns:
    """What an observer saw: every turn of a client, and every reply that the server has aggregated."""

    fits: dict[tuple[ClientId, int, str], tuple[Any, Message, Fit[Any]]] = dataclasses.field(default_factory=dict)
    arrivals: list[Arrival] = dataclasses.field(default_factory=list)


class Observed:
    """A method that works as before and writes down its turns; those of evaluations are left out."""

    def __init__(self, method: Method[Any, Any]) -> None:
        self._method = method
        self._last: dict[ClientId, tuple[tuple[ClientId, int, str], tuple[Any, Message, Fit[Any]]]] = {}
        self.turns = Turns()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def fit(self, state: Any, down: Message, local: Local) -> Fit[Any]:
        """The method's turn, noted."""
        with _untouched("fit() changes the client's state", state):
            fit = self._method.fit(state, down, local)
        self._last[local.client] = (local.client, local.round, local.phase.name), (state, down, fit)
        return fit

    def took_place(self, client: ClientId) -> None:
        """The last turn of this client was one of the protocol."""
        key, turn = self._last[client]
        self.turns.fits[key] = turn

    def aggregate(self, server: Any, arrivals: Sequence[Arrival], context: ServerContext) -> Any:
        """The method's aggregation, noted."""
        self.turns.arrivals += [dataclasses.replace(a, find_sent=_held_now(a.sent)) for a in arrivals]
        with _untouched("aggregate() changes the server's state", server):
            return self._method.aggregate(server, arrivals, context)


@contextmanager
def _untouched(flaw: str, value: Any) -> Iterator[None]:
    """Raise an error if `value` is changed in place."""
    before = digest({"value": value})
    yield
    if digest({"value": value}) != before:
        raise ContractError(f"{flaw} in place: make a new one")


def _held_now(message: Message) -> Callable[[], Message]:
    return lambda: message


class Repeating(InProcess):
    """Delivers some orders and their replies twice, and tells an observer which turns are real."""

    def __init__(self, setup: Setup, observed: Observed, script: Sequence[Mapping[ClientId, Event]]) -> None:
        super().__init__(setup)
        self.observed = observed
        self.script = script

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            (outcome,) = super().run([job])
            if job.kind == "fit":
                self.observed.took_place(job.client)
            yield outcome
            events = self.script[job.stamp.round] if job.stamp.round < len(self.script) else {}
            if job.kind == "fit" and events.get(job.client) == "twice":
                before = digest(self.store.get(job.client))
                yield from self._again(job)
                if digest(self.store.get(job.client)) != before:
                    raise ContractError(f"an order that came twice has changed the state of {job.client}")
                yield outcome

    def _again(self, job: Job) -> Iterator[Outcome]:
        """A second delivery of an order: a client with a memory refuses, one without answers the same again."""
        try:
            yield from super().run([job])
        except WireError:
            return


def play(observed: Observed, script: Sequence[Mapping[ClientId, Event]], **changes: Any) -> Rounds:
    """A run in which everyone fares as the script says, and one round more in which all is well.

    `changes` are other fields of its :class:`~sparsona.federation.setup.Setup`.
    """
    setup = dataclasses.replace(tiny_setup(observed._method, rounds=len(script) + 1), method=observed, **changes)  # type: ignore[arg-type]
    engine = Repeating(setup, observed, script)
    sizes = {name: len(split.test) for name, split in setup.federation.splits.items()}
    rounds = Rounds(setup, engine, Scripted(script), Evaluation(every=0), RunLog(sizes, True))
    rounds.run()
    _none_refused(rounds)
    return rounds


def check_delivery(method: Method[Any, Any], script: Sequence[Mapping[ClientId, Event]]) -> None:
    """Raise a ContractError unless both sides agree whatever becomes of orders and replies.

    For every aggregated reply: the server knows the downlink that it answers, to the bit, and counts the reply once.
    For every turn: the client goes on from the right one of the two states that its last turn gave. With error
    feedback: the residual and what was sent make up the residual that is kept if the reply is lost.
    """
    observed = Observed(method)
    setup = play(observed, script).setup
    turns = observed.turns
    seen: set[tuple[ClientId, int, str]] = set()
    for arrival in turns.arrivals:
        key = arrival.client, arrival.round, _phase_of(arrival, turns)
        if key in seen:
            raise ContractError(f"a reply of {arrival.client} to round {arrival.round + 1} was counted twice")
        seen.add(key)
        if not _equal(turns.fits[key][1], arrival.sent):
            raise ContractError(f"the downlink of {arrival.client} in round {arrival.round + 1} is not what it has got")
    for client in setup.task.clients:
        _follows(client, turns, seen, type(method).feedback)


def _phase_of(arrival: Arrival, turns: Turns) -> str:
    """The phase whose turn gave this reply."""
    for (client, round, name), (_, _, fit) in turns.fits.items():
        if (client, round) == (arrival.client, arrival.round) and _equal(fit.reply, arrival.message):
            return name
    raise ContractError(f"the reply of {arrival.client} to round {arrival.round + 1} is not what it has sent")


def _equal(one: Message, other: Message) -> bool:
    """Whether two messages hold the same parts, bit for bit."""
    names = [{name for name in m if name != BUFFERS} for m in (one, other)]
    return names[0] == names[1] and all(
        digest({"part": one.parts[name]}) == digest({"part": other.parts[name]}) for name in names[0]
    )


def _follows(client: ClientId, turns: Turns, arrived: set[tuple[ClientId, int, str]], feedback: str) -> None:
    """Each turn of a client starts from what the one before has left for the case that happened."""
    before: Any = None
    for key, (state, _, fit) in turns.fits.items():
        if key[0] != client:
            continue
        if before is not None and digest({"state": state}) != digest({"state": before}):
            raise ContractError(f"{client} does not go on in round {key[1] + 1} from what its last turn has left")
        if feedback:
            _conserved(client, key[1], fit, feedback)
        before = fit.state if key in arrived or not len(fit.reply) else fit.lost


def _conserved(client: ClientId, round: int, fit: Fit[Any], feedback: str) -> None:
    """What is sent is what the residual lacks."""
    lacking = getattr(fit.lost, feedback) - getattr(fit.state, feedback)
    sent = np.concatenate([_values(part) for part in fit.reply.parts.values()]) if len(fit.reply) else lacking[:0]
    lacking, sent = np.sort(lacking[lacking != 0]), np.sort(sent[sent != 0])
    if len(lacking) != len(sent) or not np.allclose(lacking, sent, rtol=1e-3, atol=1e-6):
        raise ContractError(
            f"{client}, round {round + 1}: residual and reply do not add up to what it keeps if that is lost"
        )


def _values(part: Part) -> Vector:
    if isinstance(part, Sparse):
        return part.values
    if isinstance(part, Ternary):
        return part.dense()
    return part if isinstance(part, np.ndarray) and part.dtype == np.float32 else np.zeros(0, np.float32)


def _run(
    method: Method[Any, Any],
    *,
    clients: int = 3,
    rounds: int = ROUNDS,
    schedule: Schedule | None = None,
    engine: type[InProcess] = InProcess,
    checkpointer: Checkpointer | None = None,
    stop: int = 0,
    resume: bool = False,
    config: TrainConfig | None = None,
) -> Rounds:
    setup = tiny_setup(method, clients, rounds)
    setup = dataclasses.replace(setup, config=config or setup.config)
    sizes = {name: len(share.test) for name, share in setup.federation.splits.items()}
    loop = Rounds(setup, engine(setup), schedule or Sampled(), Evaluation(), RunLog(sizes, True), checkpointer)
    if resume:
        loop.resume()
    if stop:
        stopped = iter(range(stop - 1))

        def interrupt(_: object) -> None:
            if next(stopped, None) is None:
                raise KeyboardInterrupt

        try:
            loop.run(interrupt)
        except KeyboardInterrupt:
            return loop
    loop.run()
    _none_refused(loop)
    for outcome in loop.finish("personal", setup.task.clients):
        if outcome.model is None:
            raise ContractError(f"personal_model() gave no model for {outcome.client}")
    return loop


def _none_refused(loop: Rounds) -> None:
    for round, client, reason in loop.refused:
        raise ContractError(f"the server refuses the honest reply of {client} in round {round + 1}: {reason}")


def _digests(rounds: Rounds) -> dict[str, str]:
    return {"the server": digest(rounds.server), **rounds.engine.store.digests(rounds.setup.task.clients)}


def _same(what: str, one: Rounds, other: Rounds) -> None:
    ours, theirs = _digests(one), _digests(other)
    for who in ours:
        if ours[who] != theirs[who]:
            raise ContractError(f"{what} must give the same bits, but the final state of {who} differs")


def _declared(method: Method[Any, Any]) -> None:
    kind = type(method)
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ContractError(f"{kind.__name__} must be a frozen dataclass of hyper-parameters")
    if not (kind.__doc__ or "").strip() or (kind.__doc__ or "").startswith(f"{kind.__name__}("):
        raise ContractError(f"{kind.__name__} needs a docstring: `sparsona methods` shows its first line")


FORBIDDEN = (
    "sparsona.engines",
    "sparsona.wire",
    "sparsona.federation",
    "sparsona.runs",
    "sparsona.api",
    "sparsona.cli",
)


def _imports(method: Method[Any, Any]) -> None:
    """A method knows neither engine nor wire; neither do the modules beside it that it imports, nor theirs."""
    first = type(method).__module__
    own = ("sparsona.methods", "sparsona.ops") if first.startswith("sparsona.") else (first.partition(".")[0],)
    seen, waiting = {first}, [first]
    while waiting:
        module = waiting.pop()
        for name in _imported(sys.modules[module]):
            if _within(name, FORBIDDEN):
                raise ContractError(f"{module} imports {name}: a method knows neither engine nor wire")
            if _within(name, own) and name in sys.modules and name not in seen:
                seen.add(name)
                waiting.append(name)


def _imported(module: ModuleType) -> Iterator[str]:
    """The modules that a module's source names in its imports."""
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            package = (module.__package__ or "").split(".")
            base = [*package[: len(package) + 1 - node.level], node.module or ""] if node.level else [node.module or ""]
            origin = ".".join(part for part in base if part)
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _sends(method: Method[Any, Any]) -> None:
    """A downlink is the same when it is asked for again, and the server's state is, too."""
    task = tiny_setup(method).task
    server = method.start_server(task)
    before = digest(server)
    for client in task.clients:
        context = ServerContext(task, 0, method.phases(0)[0])
        one, other = (method.send(server, client, context) for _ in range(2))
        if digest(server) != before:
            raise ContractError("send() changes the server's state in place")
        if not _equal(one, other):
            raise ContractError(f"send() gives {client} another message when it is asked again")


def _round_trips(rounds: Rounds) -> None:
    states = {"the server": rounds.server, **{k: rounds.engine.store.get(k) for k in rounds.setup.task.clients}}
    for who, state in states.items():
        data = pack(state)
        if pack(unpack_like(data, state) if dataclasses.is_dataclass(state) else unpack(data, type(state))) != data:
            raise ContractError(f"the state of {who} does not survive being written and read")


def _newcomer(rounds: Rounds) -> None:
    """A client that the server never heard of is served, has a model, and can adapt."""
    setup = rounds.setup
    name = "somebody new"
    shares = {**setup.federation.splits, name: setup.federation.splits[setup.task.clients[0]]}
    wider = dataclasses.replace(setup, federation=dataclasses.replace(setup.federation, splits=shares))
    later = Rounds(wider, InProcess(wider), rounds.schedule, rounds.evaluation, rounds.run_log)
    later.server, later.delivery = rounds.server, rounds.delivery
    before = digest(rounds.server)
    for outcome in later.finish("adapt", [name]):
        if "pre" not in outcome.scores:
            raise ContractError("a new client has no model before it adapts")
    if digest(rounds.server) != before:
        raise ContractError("send() changes the server's state in place")


class Tap(InProcess):
    """Keeps every message that clients send."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.sent: list[tuple[ClientId, Message]] = []
        self._limit, self._lengths = setup.limit(), setup.task.layout.lengths

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for outcome in super().run(jobs):
            if outcome.kind == "fit" and outcome.frame.data:
                message = decode(outcome.frame.data, self._limit, self._lengths, references=self.references.find)
                self.sent.append((outcome.client, message))
            yield outcome


class Recorder(Tap):
    """Keeps also every state that clients have had, the first one included. Their replies refer to no other frame."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(dataclasses.replace(setup, packing="plain"))
        self.states = {client: [self.store.get(client).state] for client in setup.task.clients}

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run the turns, and keep what clients remember after each."""
        for outcome in super().run(jobs):
            if outcome.kind == "fit":
                self.states[outcome.client].append(self.store.get(outcome.client).state)
            yield outcome


LEAKY = TrainConfig(epochs=2, batch=16, lr=0.005, momentum=0.9)
"""A training whose optimiser has a memory to leak. Even a client of one batch takes two steps: after one from a common
start its own model may be the one it sends."""


def _private(method: Method[Any, Any]) -> None:
    """No sample, and no field of any state of a client that the method declares private, is found in any message.

    What the initial weights hold is known to all and no secret.
    """
    try:
        rounds = _run(method, engine=Recorder, config=LEAKY)
    except InputError:  # it refuses momentum
        rounds = _run(method, engine=Recorder, config=dataclasses.replace(LEAKY, lr=0.05, momentum=0.0))
    engine, setup = rounds.engine, rounds.setup
    assert isinstance(engine, Recorder)
    known = setup.task.initial.tobytes()
    for client, message in engine.sent:
        held = b"".join(array.tobytes() for array in _arrays(message))
        share = setup.federation.splits[client]
        if any(setup.federation.data.inputs[i].tobytes() in held for i in share.train):
            raise ContractError(f"a training sample of {client} travels in a message")
        for state, field in product(engine.states[client], type(method).private):
            for array in _arrays(getattr(state, field)):
                if any(chunk in held and chunk not in known for chunk in _chunks(array)):
                    raise ContractError(f"{field!r} of {client} is declared private but travels in a message")


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Message):
        for part in value.parts.values():
            yield from _arrays(part)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _arrays(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _arrays(inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _arrays(getattr(value, field.name))


def _chunks(array: Vector, length: int = 16) -> Iterator[bytes]:
    """Stretches that would betray the array; constant ones (zeros, ones) betray nothing."""
    flat = np.ravel(array)
    for start in range(0, max(1, len(flat) - length + 1), length):
        chunk = flat[start : start + length]
        if len(chunk) >= 4 and len(np.unique(chunk)) > 2:
            yield chunk.tobytes()


def check_partitioner(partition: Callable[..., Mapping[str, Indices]], **options: Any) -> None:
    """Every sample at most once, nobody without samples, the same twice, another with another seed."""
    labels = np.repeat(np.arange(6), 50)
    samples = Samples(labels, 6, np.arange(300) % 5, tuple("abcde"))
    parts = partition(samples, 5, Chance(3), **options)
    if len(parts) != 5:
        raise ContractError(f"5 clients were asked for, {len(parts)} were made")
    for name, indices in parts.items():
        if not isinstance(name, str) or indices.dtype != np.int64 or indices.ndim != 1 or not len(indices):
            raise ContractError(f"client {name!r} must have a name and at least one int64 index")
    together = np.concatenate(list(parts.values()))
    if len(np.unique(together)) != len(together) or together.min() < 0 or together.max() >= len(labels):
        raise ContractError("a sample is dealt out twice, or does not exist")
    if not _same_parts(parts, partition(samples, 5, Chance(3), **options)):
        raise ContractError("the same seed must deal the same way")
    other = Watched(4)
    if _same_parts(parts, partition(samples, 5, other, **options)) and other.asked:
        raise ContractError("another seed must deal another way")


@dataclass(frozen=True)
class Watched(Chance):
    """Chance that notes what it was asked for. A partition that asks for nothing may deal the same way always."""

    asked: list[str] = dataclasses.field(default_factory=list)

    def rng(self, purpose: str, *, round: int = 0, client: str = "", layer: int = 0) -> np.random.Generator:
        """The usual generator; its purpose is noted."""
        self.asked.append(purpose)
        return super().rng(purpose, round=round, client=client, layer=layer)


def _same_parts(one: Mapping[str, Indices], other: Mapping[str, Indices]) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[name], other[name]) for name in one)


def check_model(build: Callable[..., nn.Module], shape: tuple[int, ...], outputs: int = 10, **options: Any) -> None:
    """The module fits a layout, answers any batch with one row of outputs, and its first weights follow the seed."""
    flats = []
    for _ in range(2):
        with Chance(5).torch("initial weights"):
            flats.append(Flat(build(shape, outputs, **options)))
    if not np.array_equal(flats[0].read(), flats[1].read()):
        raise ContractError("the same seed must give the same initial weights")
    flat = flats[0]
    weights = flat.read()
    flat.load(weights * 2)
    if not np.array_equal(flat.read(), weights * 2):
        raise ContractError("weights do not survive being loaded and read")
    flat.load(weights)
    tokens = len(shape) == 1 and any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in flat.module.modules())
    inputs = (
        torch.ones(3, *shape, dtype=torch.int64)
        if tokens
        else torch.linspace(-1, 1, 3).reshape(3, *(1,) * len(shape)).expand(3, *shape)
    )
    flat.module.eval()
    answer = flat.module(inputs)
    if answer.shape != (3, outputs):
        raise ContractError(f"3 samples must give outputs of shape (3, {outputs}), not {tuple(answer.shape)}")
    if len(shape) == 3 and not torch.allclose(answer, flat.module(channels_last(inputs)), atol=1e-4):
        raise ContractError("the model answers differently when its input is in channels_last memory")
    flat.module.train()
    gradient = flat.gradient
    torch.autograd.backward(flat.module(inputs).sum())
    if not torch.isfinite(gradient).all():
        raise ContractError("the gradient is not finite")
