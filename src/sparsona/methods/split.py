"""Methods whose model has two parts: one is averaged, the other never leaves the client.

- FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019.
- FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
  Learning", ICML 2021.
- LG-FedAvg: Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency, "Think Locally, Act Globally: Federated
  Learning with Local and Global Representations", 2020.
- FedBN: Li, Jiang, Zhang, Kamp, Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
  ICLR 2021.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.ops.mean import MergeRule, merged
from sparsona.ops.parts import last_layers
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's own part."""

    kept: Vector


@dataclass(frozen=True)
class SplitModel(Method[ServerState, ClientState], ABC):
    """A method whose clients share some weights, chosen by the method, and keep the others."""

    private: ClassVar[tuple[str, ...]] = ("kept",)
    by_examples: ClassVar[bool] = True
    """Whether the shared parts are weighed by their clients' examples, or all alike."""

    merge: MergeRule = field(default="mean", kw_only=True)
    server: ServerStep = field(default=PLAIN_STEP, kw_only=True)

    @abstractmethod
    def shared(self, layout: Layout) -> Mask:
        """Return the mask of the shared weights."""

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial[self.shared(task.layout)])

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial[~self.shared(task.layout)])

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(shared=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        return self.answer(local.train(self.personal_model(state, down, local)).weights, local)

    def answer(self, trained: Vector, local: Local) -> Fit[ClientState]:
        """Send the shared part of a trained model back, and keep the other one."""
        shared = self.shared(local.layout)
        return Fit(ClientState(trained[~shared]), Message(shared=trained[shared], examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        messages = (a.message for a in arrivals)
        size = len(server.weights)
        replies = ((m.examples() if self.by_examples else 1, m.vector("shared", size)) for m in messages)
        return server.towards(merged(self.merge, replies, server.weights), self.server)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        shared, model = self.shared(local.layout), np.empty(local.layout.size, np.float32)
        model[shared], model[~shared] = down.vector("shared", int(shared.sum())), state.kept
        return model


@METHODS.named("fedper")
@dataclass(frozen=True)
class FedPer(SplitModel):
    """Shared body, private head."""

    head: int = option(1, "number of private layers at the end", ge=1)

    def shared(self, layout: Layout) -> Mask:
        return ~last_layers(layout, self.head)


@METHODS.named("fedrep")
@dataclass(frozen=True)
class FedRep(SplitModel):
    """Shared body, private head; a client trains the head first, then the body.

    The authors train every head once more before the last test. Here no client is tested after more training than
    with the other methods.
    """

    head: int = option(1, "number of private layers at the end", ge=1)
    head_epochs: int = option(1, "epochs of the head, before the body is trained for training.epochs", ge=1)
    head_lr: float | None = option(None, "learning rate of the head (not given: training.lr)", gt=0)
    new_epochs: int = option(10, "epochs that a new client trains its head; the body stays as it is", ge=1)

    def shared(self, layout: Layout) -> Mask:
        return ~last_layers(layout, self.head)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        headed = self._head(state, down, local, self.head_epochs)
        return self.answer(local.train(headed, mask=self.shared(local.layout), stream="body").weights, local)

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(epochs=self.head_epochs, steps=None) + steps())

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        return self.answer(self._head(state, down, local, self.new_epochs), local)

    def _head(self, state: ClientState, down: Message, local: Local, epochs: int) -> Vector:
        config = replace(local.config, epochs=epochs, steps=None, lr=self.head_lr or local.config.lr)
        whole, private = self.personal_model(state, down, local), ~self.shared(local.layout)
        return local.train(whole, config, mask=private, stream="head").weights


@METHODS.named("lg-fedavg")
@dataclass(frozen=True)
class LGFedAvg(SplitModel):
    """Private representation, shared last layers, which are averaged over the replies.

    The authors start from a model that FedAvg has trained. Here all clients start from the initial model.
    """

    by_examples: ClassVar[bool] = False
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    top: int = option(2, "number of shared layers at the end (at most all but the first)", ge=1)

    def shared(self, layout: Layout) -> Mask:
        return last_layers(layout, min(self.top, len(layout.layers) - 1))


@METHODS.named("fedbn")
@dataclass(frozen=True)
class FedBN(SplitModel):
    """FedAvg with private normalisation layers; a model without any is trained as by FedAvg."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    def shared(self, layout: Layout) -> Mask:
        # The weight of a normalisation layer has one dimension, the scale per channel.
        parts = [(t.name.rpartition("."), t) for t in layout.tensors]
        norms = {layer for (layer, _, name), t in parts if name == "weight" and len(t.shape) == 1}
        return np.concatenate([np.full(t.size, layer not in norms) for (layer, _, _), t in parts])
