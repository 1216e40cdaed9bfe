"""One conformance suite over every registered name; and the suite itself finds what it should find."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

from sparsona.errors import ContractError
from sparsona.experiment import make_method
from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._masked import ClientState as MaskState
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedspa import FedSpa
from sparsona.models import MODELS
from sparsona.ops.mixture import Mixture
from sparsona.partition import PARTITIONS
from sparsona.testing import check_method, check_model, check_partitioner
from sparsona.testing.privacy import check_privacy
from sparsona.training.local import Local


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(make_method(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS.names())
def test_a_check_takes_less_than_ten_seconds_of_the_processor(name: str) -> None:
    method = make_method(name, {})
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


SAMPLES: dict[str, Callable[[Local], Any]] = {
    "leaks a sample": lambda local: local.runner.raw[local.split.train[0]].numpy().ravel(),
    "leaks a sample as float32": lambda local: local.runner.raw[local.split.train[0]].float().numpy().ravel(),
    "leaks a prepared sample": lambda local: local.inputs(slice(1)).numpy().ravel(),
    "leaks a prepared sample as float16": lambda local: local.inputs(slice(1)).half().numpy().ravel(),
}
"""A sample as a method may send it, by the flaw."""


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
        if self.flaw in SAMPLES:
            return Fit(client, Message(weights=trained, sample=SAMPLES[self.flaw](local)), trained)
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
            weights = (weights + a.message.vector("weights")) / np.float32(2)
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
        ("leaks a sample as float32", "a training sample of c0 travels"),
        ("leaks a prepared sample", "a training sample of c0 travels"),
        ("leaks a prepared sample as float16", "a training sample of c0 travels"),
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
        ("unknown client", r"a new client: send\(\) raises KeyError: 'somebody new'"),
        ("needs everyone", r"a single client: aggregate\(\) raises AssertionError"),
        ("remembers", "no memory in the method: 'flaw' of the method object has changed"),
        ("remembers more", "no memory in the method: 'seen' of the method object has changed"),
        (
            "fails for one",
            r"a run of three clients: the server refuses the honest reply of c1 in round 1: aggregate\(\) raises Key",
        ),
    ],
)
def test_crashes_are_named_with_their_check(flaw: str, complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_method(Flawed(flaw))


@dataclass(frozen=True)
class Bad(FedAvg):
    """FedAvg, of which one answer is another."""

    function: str = ""
    flaw: str = ""

    def start_client(self, task: Task, client: ClientId) -> Any:
        return OwnState(np.zeros(3, np.float32))

    def send(self, server: Any, to: ClientId, context: ServerContext) -> Any:
        message = super().send(server, to, context)
        return dict(message.parts) if self.function == "send" else message

    def fit(self, state: Any, down: Message, local: Local) -> Any:
        fit: Fit[Any] = replace(super().fit(None, down, local), state=state)
        assert isinstance(fit.model, np.ndarray)
        if self.function == "state":
            return replace(fit, state=OwnState(np.full(3, np.nan, np.float32)))
        if self.function == "lost":
            return replace(fit, if_lost=OwnState(np.full(3, np.inf, np.float32)))
        if self.function == "reply":
            return replace(fit, reply={"weights": fit.model})  # type: ignore[arg-type]
        if self.flaw == "tuple":
            return fit.state, fit.reply, fit.model
        return replace(fit, model=self._bad(fit.model)) if self.function == "fit" else fit

    def aggregate(self, server: Any, arrivals: Sequence[Arrival], context: ServerContext) -> Any:
        after = super().aggregate(server, arrivals, context)
        return None if self.function == "aggregate" else after

    def personal_model(self, state: Any, down: Message, local: Local) -> Any:
        model = super().personal_model(None, down, local)
        return self._bad(model) if self.function == "personal_model" else model

    def _bad(self, model: Vector) -> Any:
        calls.append(self.flaw)
        bad: dict[str, Callable[[], Any]] = {
            "": lambda: model,
            "none": lambda: None,
            "nan": lambda: np.where(np.arange(len(model)) == 7, np.float32("nan"), model),
            "float64": lambda: model.astype(np.float64),
            "short": lambda: model[:-1],
            "table": lambda: model[None],
            "list": lambda: model.tolist(),
            "chance": lambda: model + np.float32(np.random.default_rng().random()),
            "time": lambda: model * np.float32(1 + time.perf_counter_ns() % 1000 / 1000),
            "counter": lambda: model * np.float32(1 + len(calls) / 1000),
            "nan in a mixture": lambda: Mixture((model, model), np.array([np.nan, 1], np.float32)),
        }
        return bad[self.flaw]()


calls: list[str] = []


def test_an_answer_that_is_not_another_passes() -> None:
    check_method(Bad())


SAME = "the same run twice: two runs of the same seed must give the same bits, but {0}() gives c., in round ., another"
RUN = "a run of three clients: "


@pytest.mark.parametrize(
    ("function", "flaw", "complaint"),
    [
        ("personal_model", "chance", SAME),
        ("personal_model", "time", SAME),
        ("personal_model", "counter", SAME),
        ("fit", "chance", SAME),
        ("fit", "counter", SAME),
        ("personal_model", "nan", RUN + "{0}() gives c., in round 2, a model with nan: every number must be finite"),
        ("fit", "nan", RUN + "{0}() gives c., in round 1, a model with nan: every number must be finite"),
        ("personal_model", "nan in a mixture", RUN + "{0}() gives c., in round 2, a model with nan (mixture): every"),
        ("personal_model", "none", RUN + "{0}() gives c., in round 2, no model: give a float32 vector, or a frozen"),
        ("fit", "none", RUN + "{0}() gives c., in round 1, no model in phase 'train', which trains: give Fit"),
        ("personal_model", "float64", RUN + "{0}() gives c., in round 2, a float64 model of 299 numbers: give a"),
        ("fit", "short", RUN + "{0}() gives c., in round 1, a float32 model of 298 numbers: give a float32 vector of"),
        ("fit", "table", RUN + "{0}() gives c., in round 1, a float32 model of shape (1, 299): give a float32 vector"),
        ("personal_model", "list", RUN + "{0}() gives c., in round 2, a list as its model: give a float32 vector"),
        ("fit", "tuple", RUN + "what {0}() returns must be a Fit, not a tuple: return Fit(state, reply, model)"),
        ("aggregate", "", RUN + "what {0}() returns must be a ServerState, not a NoneType: return the server's"),
        ("send", "", "send: what {0}() returns must be a Message, not a dict: return a Message"),
        ("reply", "", RUN + "the reply of fit() must be a Message, not a dict: give Fit a Message"),
        ("state", "", RUN + "fit() gives c., in round 1, a state with nan (own): every number must be finite"),
        ("lost", "", RUN + "fit() gives c., in round 1, a state if_lost with inf (own): every number must be finite"),
    ],
)
def test_a_wrong_answer_is_one_line_that_names_its_function(function: str, flaw: str, complaint: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_method(Bad(function=function, flaw=flaw))
    told = re.escape(complaint.format(function)).replace("c\\.,", "c.,").replace("round\\ \\.,", "round .,")
    assert re.match(told, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Misnamed(Bad):
    """A method that declares a field which is not there."""

    private: ClassVar[tuple[str, ...]] = ("onw",)


@dataclass(frozen=True)
class MisnamedResidual(Bad):
    """A method with error feedback by a field which is not there."""

    feedback: ClassVar[str] = "rest"


def test_a_declared_field_that_is_not_there_is_named() -> None:
    told = "declaration: private names 'onw', which is no field of the client's state; did you mean 'own'?"
    with pytest.raises(ContractError, match=re.escape(told)):
        check_method(Misnamed())
    told = "declaration: feedback names 'rest', which is no field of the client's state: name that of the residual"
    with pytest.raises(ContractError, match=re.escape(told)):
        check_method(MisnamedResidual())


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
        ("state in place", r"a run of three clients: fit\(\) changes the client's state in place"),
        ("downlink in place", r"a run of three clients: fit\(\) raises ValueError: output array is read-only"),
        ("server in place", r"a run of three clients: aggregate\(\) changes the server's state in place"),
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
    with pytest.raises(ContractError, match="belongs to two clients"):
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
