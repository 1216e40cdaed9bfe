"""Check that both sides of a method agree after lost, late and repeated orders and replies."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.errors import ContractError, WireError
from sparsona.federation.delivery import BUFFERS
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Plan
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.message import Message, Part, Sparse, Ternary, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext
from sparsona.personal.kept import leaves
from sparsona.personal.layer import PersonalState
from sparsona.runs.state import digest
from sparsona.testing.guard import GuardedMethod
from sparsona.testing.tiny import MEAN, none_refused, tiny_setup
from sparsona.training.local import Local

Event: TypeAlias = Literal["ok", "lost", "late", "later", "crashed", "absent", "twice"]
"""The fate of a client's turn: its reply arrives, is lost, or comes one or two rounds late; the client crashes before
it trains; it is not sampled; or its order and reply are delivered twice."""

SCRIPTS: tuple[tuple[Mapping[ClientId, Event], ...], ...] = (
    ({"c1": "lost"}, {"c0": "late", "c1": "twice"}, {"c1": "lost", "c2": "crashed"}, {"c2": "lost"}, {}),
    ({"c0": "later", "c1": "twice"}, {"c1": "lost", "c2": "late"}, {"c1": "absent"}, {"c0": "lost"}, {"c0": "twice"}),
)
"""The scripts of :func:`check_method`: one mapping per round; unnamed clients answer in time."""


@dataclass(frozen=True)
class Scripted:
    """All clients take part, and their turns follow the script; after its end all replies arrive."""

    script: Sequence[Mapping[ClientId, Event]]

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        """Return the script's plan of this round."""
        events = self.script[round] if round < len(self.script) else {}

        def those(*kinds: Event) -> frozenset[ClientId]:
            return frozenset(client for client in idle if events.get(client, "ok") in kinds)

        delay = {client: 1 if events[client] == "late" else 2 for client in those("late", "later")}
        invited = tuple(sorted(set(idle) - those("absent")))
        return Plan(invited, those("crashed"), those("lost"), delay)


@dataclass
class Turns:
    """A record of every client's turns, and of every aggregated reply."""

    fits: dict[tuple[ClientId, int, str], tuple[Any, Message, Fit[Any]]] = dataclasses.field(default_factory=dict)
    arrivals: list[Arrival] = dataclasses.field(default_factory=list)


class Observed:
    """A checked method that records its turns, except for evaluations."""

    def __init__(self, method: Method[Any, Any]) -> None:
        self._method = GuardedMethod(method)
        self._last: dict[ClientId, tuple[tuple[ClientId, int, str], tuple[Any, Message, Fit[Any]]]] = {}
        self.turns = Turns()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def fit(self, state: Any, down: Message, local: Local) -> Fit[Any]:
        """Run and record the method's turn."""
        fit = self._method.fit(state, down, local)
        self._last[local.client] = (local.client, local.round, local.phase.name), (state, down, fit)
        return fit

    def took_place(self, client: ClientId) -> None:
        """Mark the last turn of this client as a real one."""
        key, turn = self._last[client]
        self.turns.fits[key] = turn

    def aggregate(self, server: Any, arrivals: Sequence[Arrival], context: ServerContext) -> Any:
        """Run and record the method's aggregation."""
        self.turns.arrivals += [dataclasses.replace(a, find_sent=_held_now(a.sent)) for a in arrivals]
        return self._method.aggregate(server, arrivals, context)


def _held_now(message: Message) -> Callable[[], Message]:
    return lambda: message


class Repeating(InProcess):
    """An engine that delivers some orders and replies twice, and marks the real turns."""

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
        """Deliver an order again: a client with a memory refuses it, one without answers the same."""
        try:
            yield from super().run([job])
        except WireError:
            return


def play(observed: Observed, script: Sequence[Mapping[ClientId, Event]], **changes: Any) -> Rounds:
    """Run the script, and one more round in which all replies arrive.

    `changes` are other fields of its :class:`~sparsona.federation.setup.Setup`.
    """
    setup = dataclasses.replace(tiny_setup(observed, rounds=len(script) + 1, personal=MEAN), **changes)  # type: ignore[arg-type]
    engine = Repeating(setup, observed, script)
    rounds = assemble(setup, engine, Scripted(script), LAST_ROUND)
    rounds.run()
    none_refused(rounds)
    return rounds


def check_delivery(method: Method[Any, Any], script: Sequence[Mapping[ClientId, Event]]) -> None:
    """Raise a ContractError unless both sides agree after every kind of lost, late and repeated message.

    For every aggregated reply: the server knows the answered downlink, to the bit, and counts the reply once. For
    every turn: the client continues from the right one of the two states of its last turn. With error feedback: the
    residual plus the upload equals the residual that is kept if the reply is lost. The running mean of the personal
    layer includes every model that the client has trained, whatever happened to the replies.
    """
    observed = Observed(method)
    rounds, turns = play(observed, script), observed.turns
    seen: set[tuple[ClientId, int, str]] = set()
    for arrival in turns.arrivals:
        key = arrival.client, arrival.round, _phase_of(arrival, turns)
        if key in seen:
            raise ContractError(f"a reply of {arrival.client} to round {arrival.round + 1} was counted twice")
        seen.add(key)
        if not equal(turns.fits[key][1], arrival.sent):
            raise ContractError(f"the downlink of {arrival.client} in round {arrival.round + 1} is not what it has got")
    for client in rounds.setup.task.clients:
        _follows(client, turns, seen, type(method).feedback)
        _averages(client, turns, rounds.engine.store.get(client).personal)


def _phase_of(arrival: Arrival, turns: Turns) -> str:
    for (client, round, name), (_, _, fit) in turns.fits.items():
        if (client, round) == (arrival.client, arrival.round) and equal(fit.reply, arrival.message):
            return name
    raise ContractError(f"the reply of {arrival.client} to round {arrival.round + 1} is not what it has sent")


def equal(one: Message, other: Message) -> bool:
    """True if two messages hold the same parts, bit for bit."""
    names = [{name for name in m if name != BUFFERS} for m in (one, other)]
    return names[0] == names[1] and all(
        digest({"part": one.parts[name]}) == digest({"part": other.parts[name]}) for name in names[0]
    )


def _follows(client: ClientId, turns: Turns, arrived: set[tuple[ClientId, int, str]], feedback: str) -> None:
    """Check that each turn starts from the state that the turn before left for this case."""
    before: Any = None
    for key, (state, _, fit) in turns.fits.items():
        if key[0] != client:
            continue
        if before is not None and digest({"state": state}) != digest({"state": before}):
            raise ContractError(f"{client} does not go on in round {key[1] + 1} from what its last turn has left")
        if feedback:
            _conserved(client, key[1], fit, feedback)
        before = fit.state if key in arrived or not len(fit.reply) else fit.lost


def _averages(client: ClientId, turns: Turns, personal: PersonalState | None) -> None:
    """Check that the client's running mean is the mean of the models of its turns."""
    mean: tuple[Vector, ...] | None = None
    for (who, _, _), (_, _, fit) in turns.fits.items():
        if who == client and fit.model is not None:
            new = leaves(fit.model)
            half, fresh = np.float32(0.5), mean is None or [v.shape for v in mean] != [v.shape for v in new]
            mean = new if fresh else tuple(half * a + half * b for a, b in zip(mean or (), new, strict=True))
    held = None if personal is None else personal.mean
    if (mean is None) != (held is None) or not all(map(np.allclose, mean or (), held or ())):
        raise ContractError(f"the running mean of {client} is not that of the models that it has trained")


def _conserved(client: ClientId, round: int, fit: Fit[Any], feedback: str) -> None:
    """Check that the upload is the change of the residual."""
    lacking = getattr(fit.lost, feedback) - getattr(fit.state, feedback)
    sent = np.concatenate([_values(part) for part in fit.reply.parts.values()]) if len(fit.reply) else lacking[:0]
    lacking, sent = np.sort(lacking[lacking != 0]), np.sort(sent[sent != 0])
    if len(lacking) != len(sent) or not np.allclose(lacking, sent, rtol=1e-3, atol=1e-6):
        raise ContractError(
            f"{client}, round {round + 1}: residual and reply do not add up to what it keeps if that is lost"
        )


def _values(part: Part) -> Vector:
    values = part.values if isinstance(part, Sparse) else part.dense() if isinstance(part, Ternary) else part
    return values if isinstance(values, np.ndarray) and values.dtype == np.float32 else np.zeros(0, np.float32)
