"""Check that no private field and no sample travels, and that a privacy budget is respected."""

import dataclasses
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np

from sparsona.data.dataset import Federation
from sparsona.engines.inprocess import InProcess
from sparsona.errors import ContractError, InputError
from sparsona.federation.budget import mechanisms
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import assemble
from sparsona.federation.schedule import EVERYONE
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.message import Message, Vector
from sparsona.method import ClientId, Method
from sparsona.privacy import PrivacySettings
from sparsona.registry import suggest
from sparsona.runs.state import digest
from sparsona.testing.tiny import MEAN, none_refused, run, tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.runner import ModelRunner
from sparsona.tree import leaves
from sparsona.wire import decode


class Tap(InProcess):
    """Keeps every message that clients send."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.sent: list[tuple[ClientId, Message]] = []
        self.losses: list[float] = []
        self._limit, self._lengths = setup.limit(), setup.task.layout.lengths

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for outcome in super().run(jobs):
            self.losses.append(outcome.loss)
            if outcome.kind == "fit" and outcome.frame.data:
                message = decode(outcome.frame.data, self._limit, self._lengths, references=self.references.find)
                self.sent.append((outcome.client, message))
            yield outcome


class Recorder(Tap):
    """Also keeps every state of the clients, including the first. Replies are coded without references."""

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
"""A training whose optimiser has moments that could leak. Even a client of one batch takes two steps: after one step
from a common start, its own model may equal the one that it sends.
"""


def check_privacy(method: Method[Any, Any]) -> None:
    """Check that no message holds a sample, or a field of a client's state that the method declares private.

    Samples are searched as stored and as prepared for the model, in every type of number. Patterns of the initial
    weights are not secret. Statistics of a private model are private too.
    """
    _check_buffers(method)
    try:
        rounds = run(method, engine=Recorder, config=LEAKY)
    except InputError:  # it refuses momentum
        rounds = run(method, engine=Recorder, config=dataclasses.replace(LEAKY, lr=0.05, momentum=0.0))
    engine, setup = rounds.engine, rounds.setup
    assert isinstance(engine, Recorder)
    known = setup.task.initial.tobytes()
    samples = {client: _samples(setup, client) for client in setup.task.clients}
    for client, message in engine.sent:
        held = b"".join(array.tobytes() for array in arrays(message))
        numbers = b"".join(array.astype(np.float32).tobytes() for array in arrays(message))
        if any(sample in held or sample in numbers for sample in samples[client]):
            raise ContractError(f"a training sample of {client} travels in a message: fit() must not send it")
        for state, field in product(engine.states[client], type(method).private):
            for array in arrays(getattr(state, field)):
                if any(chunk in held and chunk not in known for chunk in _chunks(array)):
                    raise ContractError(f"{field!r} of {client} is declared private but travels in a message")


AMPLE = 10**6
"""Queries for a method without a plan of its own."""
NOISE, BLIND = 0.01, 1e-20
"""The noise of answers to queries, and a clip so small that a gradient has no influence on them."""


def check_budget(method: Method[Any, Any]) -> None:
    """Check that with a privacy budget, a client's rows influence messages and models through queries alone.

    Two runs on neighbouring data sets have the same noise, and gradients clipped so far that no answer to a query
    depends on the rows. So any difference has found another way. A method may refuse a budget, before the run or when
    `local` gives no raw value. A plan of its own (`queries`) must suffice for its run.
    """
    setup = tiny_setup(method, personal=MEAN)
    try:
        planned = mechanisms(setup, PrivacySettings(noise=1.0), LAST_ROUND)
    except InputError:
        return
    blind = {client: dataclasses.replace(one, clip=BLIND, noise=NOISE / BLIND) for client, one in planned.items()}
    if type(method).queries is Method.queries:
        blind = {client: dataclasses.replace(one, most=AMPLE) for client, one in blind.items()}
    setup = dataclasses.replace(setup, privacy=blind)
    try:
        one = _budgeted(setup)
    except InputError:
        return
    other = _budgeted(dataclasses.replace(setup, federation=_neighbour(setup.federation)))
    for number, (mine, yours) in enumerate(zip(one, other, strict=True)):
        if mine != yours:
            raise ContractError(
                f"with a privacy budget, one row changes what a client sends or uses (turn {number + 1}) in another "
                "way than by local.train(), iterate() and gradient(): send only what follows from these"
            )


def _budgeted(setup: Setup) -> list[str]:
    """Return the digests of all messages of clients, of their losses, and of their models."""
    engine = Tap(setup)
    rounds = assemble(setup, engine, EVERYONE, LAST_ROUND)
    rounds.run()
    none_refused(rounds)
    models = [digest({"model": outcome.model}) for outcome in rounds.finish("personal", setup.task.clients)]
    sent = [f"{client} {digest({'parts': dict(message.parts)})}" for client, message in engine.sent]
    return [*sent, *map(repr, engine.losses), *models]


def _neighbour(federation: Federation) -> Federation:
    """The federation with another row in the place of the first client's first training row."""
    data, split = federation.data, federation.splits[min(federation.splits)]
    inputs, targets = data.inputs.copy(), data.targets.copy()
    inputs[split.train[0]] = 255 - inputs[split.train[0]]
    targets[split.train[0]] = (targets[split.train[0]] + 1) % data.classes
    return dataclasses.replace(federation, data=dataclasses.replace(data, inputs=inputs, targets=targets))


def _samples(setup: Setup, client: ClientId) -> list[bytes]:
    """Return byte patterns of a client's training samples: as stored, as float32, and as prepared for the model, also
    in float16.
    """
    data, chance, train = setup.federation.data, setup.task.chance, setup.federation.splits[client].train
    prepared = ModelRunner(setup.module, data, setup.objective, chance).batch(train)[0].numpy()
    stored, numbers = data.inputs[train], (data.inputs[train], prepared, prepared.astype(np.float16))
    as_floats = [sample.astype(np.float32).tobytes() for form in numbers for sample in form]
    return [sample.tobytes() for sample in stored] + as_floats


def check_private(method: Method[Any, Any], state: Any) -> None:
    """Raise a ContractError if the method declares a field private that the client's state does not have."""
    names = [field.name for field in dataclasses.fields(state)] if dataclasses.is_dataclass(state) else []
    for field in type(method).private:
        if field not in names:
            known = suggest(field, names) if names else ": it has none"
            raise ContractError(f"private names {field!r}, which is no field of the client's state{known}")


def _check_buffers(method: Method[Any, Any]) -> None:
    """A private field that starts as the initial model is a model, whose statistics the loop would send and average."""
    task = tiny_setup(method).task
    state = method.start_client(task, task.clients[0])
    for field in type(method).private:
        own = any(np.array_equal(array, task.initial) for array in arrays(getattr(state, field)))
        if own and method.buffers != "own":
            raise ContractError(
                f"{field!r} is a model that is declared private, but its BatchNorm statistics travel: "
                'declare buffers = "own"'
            )


def arrays(value: Any) -> Iterator[Any]:
    """All arrays in a message, a state, or what these hold."""
    tree = value.parts if isinstance(value, Message) else value
    return (leaf for leaf in leaves(tree) if isinstance(leaf, np.ndarray))


def _chunks(array: Vector, length: int = 16) -> Iterator[bytes]:
    """Yield byte patterns by which the array can be recognised; constant stretches are left out."""
    flat = np.ravel(array)
    for start in range(0, max(1, len(flat) - length + 1), length):
        chunk = flat[start : start + length]
        if len(chunk) >= 4 and len(np.unique(chunk)) > 2:
            yield chunk.tobytes()
