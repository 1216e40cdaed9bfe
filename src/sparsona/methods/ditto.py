"""Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021.
FedAvg, and beside it a personal model v of every client, which lam/2 |v - w|^2 holds near the global model w."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Queries, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.options import option
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.step import Proximal


@dataclass(frozen=True)
class ClientState:
    """The personal model v, which never leaves the client."""

    own: Vector


@METHODS.add
@dataclass(frozen=True)
class Ditto(Averaging[ClientState]):
    """FedAvg plus one personal model per client, which a proximal term keeps near the global model."""

    private: ClassVar[tuple[str, ...]] = ("own",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    lam: float = option(0.5, "strength of the pull towards the global model", ge=0)
    form: Literal["loss", "shrink"] = option(
        "loss", "the pull is a term of the loss, or a step after each step (shrink, outside the gradient's clip)"
    )
    global_epochs: int | None = option(None, "epochs of the global model (not given: training.epochs)", ge=1)
    personal_epochs: int | None = option(None, "epochs of the personal model (not given: training.epochs)", ge=1)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        w = received(down, local)
        trained = local.train(w, _config(local, self.global_epochs)).weights
        towards = Proximal(w, self.lam, apart=self.form == "shrink")
        own = local.train(state.own, _config(local, self.personal_epochs), proximal=towards, stream="personal").weights
        return Fit(ClientState(own), Message(weights=trained, examples=local.examples), own)

    def queries(self, steps: Steps) -> Queries:
        chosen = (self.global_epochs, self.personal_epochs)
        return Queries(sum(steps() if epochs is None else steps(epochs=epochs, steps=None) for epochs in chosen))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return state.own


def _config(local: Local, epochs: int | None) -> TrainConfig:
    return local.config if epochs is None else replace(local.config, epochs=epochs, steps=None)
