"""Per-FedAvg: Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach", NeurIPS 2020. FedAvg of F_i(w) = f_i(w - alpha grad f_i(w)): the global model is
a good start for one step, and a client uses the model after that step."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sparsona.errors import InputError
from sparsona.message import Message, Vector
from sparsona.method import Fit, Queries, Steps
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors

ALPHA = 0.01
"""The inner step of the paper's experiments."""


@METHODS.add
@dataclass(frozen=True)
class PerFedAvg(Averaging[None]):
    """A global model to start from: each client takes one step of its own before use."""

    alpha: float | None = option(None, "inner step size (not given: 0.01; variant repository: training.lr)", gt=0)
    beta: float | None = option(None, "outer step size (not given: training.lr)", gt=0)
    order: Literal["first", "hessian"] = option("first", "leave the Hessian out, or multiply by I - alpha H")
    variant: Literal["paper", "repository"] = option(
        "paper", "repository: as SPFL's authors, two plain steps of training.lr per batch, and none before use"
    )

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        usual = local.rate if self.variant == "repository" else ALPHA
        alpha, beta = np.float32(self.alpha or usual), np.float32(self.beta or local.rate)

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            (w,) = vectors
            ahead = w - alpha * batches[0].gradient(w)
            if self.variant == "repository":
                return (ahead - beta * batches[0].gradient(ahead),)
            outer = batches[1].gradient(ahead)
            if self.order == "hessian":
                outer = outer - alpha * batches[2].curvature(w, outer)
            return (w - beta * outer,)

        batches = 1 if self.variant == "repository" else 3 if self.order == "hessian" else 2
        (trained,) = local.iterate((received(down, local),), step, batches=batches)
        model = trained if self.variant == "repository" else self._adapted(trained, local)
        return Fit(None, Message(weights=trained, examples=local.examples), model)

    def queries(self, steps: Steps) -> Queries:
        if self.order == "hessian":
            raise InputError("per-fedavg with order=hessian needs products with Hessians: set order=first")
        own = int(self.variant == "paper")
        return Queries(2 * steps() + own, use=own)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        start = received(down, local)
        return start if self.variant == "repository" else self._adapted(start, local)

    def _adapted(self, start: Vector, local: Local) -> Vector:
        alpha = self.alpha or ALPHA
        one = replace(local.config, steps=1, repeats=1, momentum=0.0, lr=alpha, decay=1.0, drops=())
        return local.train(start, one, stream="adapt").weights
