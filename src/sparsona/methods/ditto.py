"""Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021.
FedAvg, and beside it a personal model v of every client, which lam/2 |v - w|^2 holds near the global model w."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sparsona.bench import Proximal
from sparsona.local import Local
from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import Averaging, received
from sparsona.recipe import Recipe

Epochs = Annotated[int, Field(ge=1)] | None


@dataclass(frozen=True)
class Client:
    """The personal model, which never leaves the client."""

    own: Vector


@METHODS.add
@dataclass(frozen=True)
class Ditto(Averaging[Client]):
    """FedAvg, and a personal model for every client that is held near the global one.

    `form`: the pull towards w is part of the loss (loss), or a step of its own after each step (shrink, as in DisPFL's
    code: the gradient is clipped without it). Epochs are those of the training recipe unless given here.
    """

    private: ClassVar[tuple[str, ...]] = ("own",)

    lam: Annotated[float, Field(ge=0)] = 0.5
    form: Literal["loss", "shrink"] = "loss"
    global_epochs: Epochs = None
    personal_epochs: Epochs = None

    def start_client(self, task: Task, client: ClientId) -> Client:
        return Client(task.initial)

    def fit(self, client: Client, down: Message, local: Local) -> Fit[Client]:
        w = received(down, local)
        trained = local.train(w, _recipe(local, self.global_epochs)).weights
        towards = Proximal(w, self.lam, apart=self.form == "shrink")
        own = local.train(client.own, _recipe(local, self.personal_epochs), proximal=towards, stream="personal").weights
        return Fit(Client(own), Message(weights=trained, examples=local.examples), own)

    def personal(self, client: Client, down: Message, local: Local) -> Vector:
        return client.own


def _recipe(local: Local, epochs: int | None) -> Recipe:
    return local.recipe if epochs is None else replace(local.recipe, epochs=epochs, steps=None)
