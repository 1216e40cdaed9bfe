"""One conformance suite over every registered name; and the suite itself finds what it should find."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

from sparsona.errors import ContractError
from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._masked import ClientState as MaskState
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedspa import FedSpa
from sparsona.models import MODELS
from sparsona.partition import PARTITIONS
from sparsona.testing import check_method, check_model, check_partitioner
from sparsona.testing.privacy import check_privacy
from sparsona.training.local import Local


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(METHODS.get(name)())


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS.names())
def test_a_check_takes_less_than_ten_seconds_of_the_processor(name: str) -> None:
    method = METHODS.get(name)()
    check_method(method)  # compiles what is not compiled yet
    began = time.process_time()
    check_method(method)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("name", PARTITIONS.names())
def test_every_partition_keeps_the_contract(name: str) -> None:
    check_partitioner(PARTITIONS.get(name))


COLOUR = {"lenet-cifar", "cnn-cifar100", "vgg11-gn", "resnet18-gn"}


@pytest.mark.parametrize("name", MODELS.names())
def test_every_model_keeps_the_contract(name: str) -> None:
    shape = (20,) if name == "text-embedding" else (3, 32, 32) if name in COLOUR else (1, 28, 28)
    check_model(MODELS.get(name), shape)


@dataclass(frozen=True)
class Own(FedAvg):
    """FedAvg with a model of the client's own beside it, whose statistics the loop would send."""

    private: ClassVar[tuple[str, ...]] = ("own",)

    def start_client(self, task: Task, client: ClientId) -> Any:
        return OwnState(task.initial)


@dataclass(frozen=True)
class OwnState:
    own: Vector


@dataclass(frozen=True)
class State:
    weights: Vector
    secret: Vector


@dataclass(frozen=True)
class Flawed(Method[State, State]):
    """A method with a flaw of choice."""

    flaw: str = ""
    private: ClassVar[tuple[str, ...]] = ("secret",)

    def start_server(self, task: Task) -> State:
        return State(task.initial, np.zeros(1, np.float32))

    def start_client(self, task: Task, client: ClientId) -> State:
        return State(task.initial, task.chance.rng("gate", client=client).random(40).astype(np.float32))

    def send(self, server: State, to: ClientId, context: ServerContext) -> Message:
        if self.flaw == "changes state":
            server.weights[0] += 1
        if self.flaw == "unknown client" and to not in context.task.clients:
            raise KeyError(to)
        return Message(weights=server.weights)

    def fit(self, client: State, down: Message, local: Local) -> Fit[State]:
        trained = local.train(down.vector("weights")).weights
        extra: dict[str, Vector] = {}
        if self.flaw == "leaks a gate":
            extra["gate"] = client.secret
        if self.flaw == "leaks an old gate":
            extra["gate"], client = client.secret, replace(client, secret=client.secret[::-1] + 1)
        if self.flaw == "leaks a sample":
            sample = local.runner._inputs[local.split.train[0]].numpy().ravel()
            return Fit(client, Message(weights=trained, sample=sample), trained)
        if self.flaw == "chance":
            trained = trained + np.random.default_rng().normal(size=len(trained)).astype(np.float32)
        return Fit(replace(client, weights=trained), Message(weights=trained, **extra), trained)

    def aggregate(self, server: State, arrivals: Sequence[Arrival], context: ServerContext) -> State:
        if self.flaw == "needs everyone":
            assert len(arrivals) == 3
        if self.flaw == "remembers" and context.round == 2:
            object.__setattr__(self, "flaw", "remembers\0")
        if self.flaw == "remembers more":
            object.__setattr__(self, "seen", [a.client for a in arrivals])
        if self.flaw == "fails for one" and any(a.client == "c1" for a in arrivals):
            raise KeyError("c1")
        weights = server.weights
        for a in arrivals:
            weights = (weights + a.message.vector("weights")) / 2
        if self.flaw == "undeclared":
            return State(weights, {1, 2})  # type: ignore[arg-type]
        return replace(server, weights=weights)

    def personal_model(self, client: State, down: Message, local: Local) -> Vector:
        return client.weights


def test_statistics_of_a_private_model_are_private() -> None:
    with pytest.raises(ContractError, match="'own' is a model that is declared private, but its BatchNorm statistics"):
        check_privacy(Own())


def test_a_method_without_flaw_passes() -> None:
    check_method(Flawed())


@pytest.mark.parametrize(
    ("flaw", "complaint"),
    [
        ("changes state", r"send: send\(\) changes the server's state in place"),
        ("leaks a gate", "'secret' of c0 is declared private"),
        ("leaks an old gate", "'secret' of c0 is declared private"),
        ("leaks a sample", "a training sample of c0 travels"),
        ("chance", "two runs of the same seed must give the same bits"),
        ("undeclared", "is a set"),
    ],
)
def test_flaws_are_found(flaw: str, complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_method(Flawed(flaw))


@pytest.mark.parametrize(
    ("flaw", "complaint"),
    [
        ("unknown client", "a new client: KeyError: 'somebody new'"),
        ("needs everyone", "a single client: AssertionError"),
        ("remembers", "no memory in the method: 'flaw' of the method object has changed"),
        ("remembers more", "no memory in the method: 'seen' of the method object has changed"),
        ("fails for one", "a run of three clients: the server refuses the honest reply of c1 in round 1: KeyError"),
    ],
)
def test_crashes_are_named_with_their_check(flaw: str, complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_method(Flawed(flaw))


@dataclass(frozen=True)
class Kept:
    residual: Vector


@dataclass(frozen=True)
class Sloppy(Method[State, Kept]):
    """Sends the first half of its update and keeps the other; with a flaw of choice in what it keeps."""

    flaw: str = ""
    feedback: ClassVar[str] = "residual"

    def start_server(self, task: Task) -> State:
        return State(task.initial, np.zeros(1, np.float32))

    def start_client(self, task: Task, client: ClientId) -> Kept:
        return Kept(np.zeros(task.layout.size, np.float32))

    def send(self, server: State, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: Kept, down: Message, local: Local) -> Fit[Kept]:
        start = down.vector("weights")
        trained = local.train(start).weights
        wanted = trained - start + state.residual
        half = np.arange(len(wanted) // 2)
        sent, kept = Sparse.take(wanted, half), wanted.copy()
        kept[half] = 0
        if self.flaw == "forgets":
            kept[-9:] = 0
        if self.flaw == "sends what it keeps":
            kept = wanted
        if self.flaw == "state in place":
            state.residual[:] = kept
        if self.flaw == "downlink in place":
            start[:] += 1
        reply = Message(update=sent, examples=local.examples)
        if self.flaw == "loses what is lost":
            return Fit(Kept(kept), reply, trained)
        if self.flaw == "keeps it twice":
            return Fit(Kept(kept), reply, trained, if_lost=Kept(wanted + sent.dense()))
        return Fit(Kept(kept), reply, trained, if_lost=Kept(wanted))

    def aggregate(self, server: State, arrivals: Sequence[Arrival], context: ServerContext) -> State:
        if self.flaw == "server in place":
            server.weights[:] += sum(a.message.sparse("update").dense() for a in arrivals)
            return server
        return replace(server, weights=server.weights + sum(a.message.sparse("update").dense() for a in arrivals))

    def personal_model(self, state: Kept, down: Message, local: Local) -> Vector:
        return down.vector("weights")


def test_error_feedback_without_flaw_passes() -> None:
    check_method(Sloppy())


LACKING = "lost, late and repeated messages, script 1: c., round .: residual and reply do not add up"


@pytest.mark.parametrize(
    ("flaw", "complaint"),
    [
        ("loses what is lost", LACKING),
        ("keeps it twice", LACKING),
        ("sends what it keeps", LACKING),
        ("forgets", LACKING),
        ("state in place", r"fit\(\) changes the client's state in place"),
        ("downlink in place", "a run of three clients: ValueError: output array is read-only"),
        ("server in place", r"aggregate\(\) changes the server's state in place"),
    ],
)
def test_flaws_of_delivery_are_found(flaw: str, complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_method(Sloppy(flaw))


@dataclass(frozen=True)
class Forgetful(FedSpa):
    """FedSpa whose client takes its next mask whatever becomes of its reply."""

    def fit(self, state: MaskState, down: Message, local: Local) -> Fit[MaskState]:
        fit = super().fit(state, down, local)
        return Fit(fit.state, fit.reply, fit.model)


def test_a_mask_that_moves_on_without_its_server_is_found() -> None:
    with pytest.raises(ContractError, match="lost, late and repeated messages"):
        check_method(Forgetful())


def test_the_order_of_replies_is_not_the_methods_to_see() -> None:
    """Halving one after the other depends on the order: it passes because arrivals come sorted."""
    check_method(Flawed())
    check_method(FedAvg())


def test_bad_models_and_partitions_are_found() -> None:
    with pytest.raises(ContractError, match="outputs of shape"):
        check_model(lambda shape, outputs: nn.Sequential(nn.Flatten(), nn.Linear(9, 3)), (1, 3, 3))
    with pytest.raises(ContractError, match="dealt out twice"):
        check_partitioner(lambda samples, clients, chance: {str(i): np.arange(3) for i in range(clients)})
    deal = np.arange(300).reshape(5, 60)
    with pytest.raises(ContractError, match="another seed must deal another way"):
        check_partitioner(
            lambda s, clients, chance: {str(i): deal[i + 0 * chance.rng("x").integers(9)] for i in range(5)}
        )
    check_partitioner(lambda samples, clients, chance: {str(i): deal[i] for i in range(clients)})


HELPER = """
from __future__ import annotations
from {origin} import {name}
"""
PLUGIN = """
from __future__ import annotations
from dataclasses import dataclass
from plugin_{number} import helper
from sparsona.methods._masked import ClientState as MaskState
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedspa import FedSpa

@dataclass(frozen=True)
class Mine(FedAvg):
    \"\"\"FedAvg with a helper.\"\"\"
"""


@pytest.mark.parametrize(
    ("origin", "name", "complaint"),
    [
        ("sparsona.wire", "encode", "imports: plugin_0.helper imports sparsona.wire"),
        ("sparsona", "engines", "imports: plugin_1.helper imports sparsona.engines"),
        ("sparsona.federation.rounds", "Rounds", "imports: plugin_2.helper imports sparsona.federation.rounds"),
        (".inner", "deep", "imports: plugin_3.inner imports sparsona.wire"),
    ],
)
def test_what_helpers_import_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    origin: str,
    name: str,
    complaint: str,
) -> None:
    number = complaint.partition("plugin_")[2][0]
    package = tmp_path / f"plugin_{number}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helper.py").write_text(HELPER.format(origin=origin, name=name))
    (package / "inner.py").write_text("import sparsona.wire\ndeep = 1\n")
    (package / "method.py").write_text(PLUGIN.format(number=number))
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module(f"plugin_{number}.method")
    with pytest.raises(ContractError, match=complaint):
        check_method(found.Mine())
