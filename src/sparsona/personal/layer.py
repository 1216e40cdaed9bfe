"""The personal layer: what a client uses, made of the model that the method makes.

A method makes its model; this layer turns it into the one that is measured, saved and exported. It knows no method, and
no method knows it. It has a declared state for each client, which stays on the client's side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator

from sparsona.errors import InputError
from sparsona.message import Vector
from sparsona.method import ClientId, Fit, Model, Task
from sparsona.ops.mixture import Mixture
from sparsona.options import option
from sparsona.personal.leaves import leaves, with_leaves
from sparsona.training.local import Local
from sparsona.training.prior import output_bias

Expert: TypeAlias = Literal["alone", "own", "shared"]


@dataclass(frozen=True)
class PersonalState:
    """What the layer remembers of one client.

    `mean` holds the vectors of the running mean of the models that the client has trained, and `alone` the model that
    it trains on its own data alone, with the running mean of that; None where none is kept.
    """

    mean: tuple[Vector, ...] | None = None
    alone: Vector | None = None
    alone_mean: Vector | None = None


@dataclass(frozen=True)
class PersonalLayer:
    """What a client uses of the models that it has."""

    average: float | None = option(
        None,
        "share of the old mean in a running mean of the trained models, 0: none (not given: the method's suggestion)",
        ge=0,
        lt=1,
    )
    pool: Annotated[
        tuple[Expert, ...], BeforeValidator(lambda given: given.split("+") if isinstance(given, str) else given)
    ] = option(
        (),
        "average the predictions of several models: alone (trained on the client's data only), own (the running mean, "
        "or the model trained last), shared (the method's model as it was sent); not given: one model",
    )

    def start(self, task: Task, client: ClientId) -> PersonalState | None:
        """Return the state before the client's first turn; None where nothing is to be remembered."""
        if self.pool and not task.classes:
            raise InputError("personal.pool averages the probabilities of classes: it needs a data set with classes")
        if len(set(self.pool)) < len(self.pool):
            raise InputError(f"personal.pool names a model twice: {', '.join(self.pool)}")
        if not self._remembers:
            return None
        return PersonalState(alone=task.initial if "alone" in self.pool else None)

    @property
    def _remembers(self) -> bool:
        return bool(self.average) or "alone" in self.pool or "own" in self.pool

    def after(self, state: PersonalState | None, fit: Fit[object], local: Local) -> PersonalState | None:
        """Return the state after a turn of the client; a phase that trains nothing leaves it as it is."""
        if state is None or fit.model is None:
            return state
        mean = self._averaged(state.mean, leaves(fit.model))
        if state.alone is None:
            return PersonalState(mean)
        if len(local.runner.buffers):
            raise InputError("personal.pool=alone is for nets without BatchNorm: drop it, or choose another model")
        alone = local.train(state.alone, stream="alone").weights
        (alone_mean,) = self._averaged(None if state.alone_mean is None else (state.alone_mean,), (alone,))
        return PersonalState(mean, alone, alone_mean)

    def model(self, state: PersonalState | None, assembled: Model, local: Local) -> Model:
        """Return what the client uses, given the model that the method makes at this point."""
        own = assembled
        if state is not None and state.mean is not None and (self.average or "own" in self.pool):
            own = with_leaves(assembled, state.mean)
        if self.pool:
            own = self._pooled(state, own, assembled)
        if local.runner.prior is None:
            return own
        bias, shift = output_bias(local.layout, local.task.classes), local.runner.prior
        return with_leaves(own, tuple(_shifted(v, bias, shift, local.layout.size) for v in leaves(own)))

    def _averaged(self, old: tuple[Vector, ...] | None, new: tuple[Vector, ...]) -> tuple[Vector, ...]:
        """Return the running mean after one more model; one of other shapes begins anew."""
        if not self.average or old is None or [len(v) for v in old] != [len(v) for v in new]:
            return new
        share = np.float32(self.average)
        return tuple(share * before + (1 - share) * now for before, now in zip(old, new, strict=True))

    def _pooled(self, state: PersonalState | None, own: Model, assembled: Model) -> Model:
        alone = None if state is None else state.alone if state.alone_mean is None else state.alone_mean
        experts: dict[Expert, Model | None] = {"alone": alone, "own": own, "shared": assembled}
        found = [expert for name in self.pool if (expert := experts[name]) is not None]
        vectors = tuple(expert for expert in found if isinstance(expert, np.ndarray))
        if len(vectors) < len(found):
            raise InputError("personal.pool mixes nets: this method's model is more than one vector of weights")
        equal = np.full(len(vectors), 1 / len(vectors), np.float32)
        return vectors[0] if len(vectors) == 1 else Mixture(vectors, equal)


def _shifted(vector: Vector, bias: slice, shift: Vector, size: int) -> Vector:
    """Return the weights of a net with `shift` added to its output bias; a vector of another size is no net."""
    if len(vector) != size:
        return vector
    out = vector.copy()
    out[bias] += shift
    return out


METHOD_ALONE = PersonalLayer(average=0.0)
"""A client uses the model that the method makes."""
