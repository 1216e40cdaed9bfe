"""The personal layer: what a client uses, made of the model that the method makes.

A method makes its model; this layer turns it into the one that is measured, saved and exported. It knows no method, and
no method knows it. It has a declared state for each client, which stays on the client's side. With common weights of a
pool, two things travel: derivatives of the validation loss, and the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator

from sparsona.errors import InputError
from sparsona.experts.fits import is_installed, train_expert
from sparsona.experts.models import Refitted, held_out
from sparsona.message import Vector
from sparsona.method import ClientId, Fit, Model, Task
from sparsona.ops.mixture import Mixture
from sparsona.options import option
from sparsona.personal.kept import leaves, with_leaves
from sparsona.personal.weights import Table, equal_weights, own_weights, statistics, statistics_size
from sparsona.training.local import Local
from sparsona.training.objective import output_bias

Expert: TypeAlias = Literal["alone", "own", "shared", "trees", "linear"]
ALL = "all"


def _named(given: Any) -> Any:
    """The experts of a text: with commas or plus signs between them."""
    return given.replace(",", "+").split("+") if isinstance(given, str) else given


@dataclass(frozen=True)
class PersonalState:
    """The layer's state for one client.

    `mean` holds the vectors of the running mean of the models that the client has trained, and `alone` the model that
    it trains on its own data alone, with the running mean of that; `trees` and `linear` are experts that are trained
    once. A field is None if it is not used.
    """

    mean: tuple[Vector, ...] | None = None
    alone: Vector | None = None
    alone_mean: Vector | None = None
    trees: Refitted | None = field(default=None, metadata={"omit": None})
    linear: Refitted | None = field(default=None, metadata={"omit": None})


@dataclass(frozen=True)
class PersonalLayer:
    """The choice of the model that a client uses."""

    average: float | None = option(
        None,
        "share of the old mean in a running mean of the trained models, 0: none (not given: the method's suggestion)",
        ge=0,
        lt=1,
    )
    pool: Annotated[tuple[Expert | Literal["all"], ...], BeforeValidator(_named)] = option(
        (),
        "average the predictions of several models: alone (a net trained on the client's rows only), own (the running "
        "mean, or the model trained last), shared (the method's model as it was sent), trees and linear (trained on "
        "the client's rows only), or all; not given: one model",
    )
    weights: Literal["common", "equal", "own"] = option(
        "common",
        "weights of the pool: common (fitted to the validation loss of all clients), equal, or own (each client's, "
        "shrunken to the common ones); where nothing travels, common are equal",
    )

    def resolved(self, text: bool, buffers: bool) -> PersonalLayer:
        """Return the layer with every expert that the data and the model allow in the place of "all"."""
        if ALL not in self.pool:
            return self
        tables: tuple[Expert, ...] = () if text else ("trees", "linear") if is_installed() else ("linear",)
        alone: tuple[Expert, ...] = () if buffers else ("alone",)
        return dataclasses.replace(self, pool=(*alone, "own", "shared", *tables))

    def start(self, task: Task, client: ClientId) -> PersonalState | None:
        """Return the state before the client's first turn; Return None if the layer needs no state."""
        if len(set(self.pool)) < len(self.pool):
            raise InputError(f"personal.pool names a model twice: {', '.join(self.pool)}")
        if not (self.average or {"alone", "own", "trees", "linear"} & set(self.pool)):
            return None
        return PersonalState(alone=task.initial if "alone" in self.pool else None)

    @property
    def told(self) -> int:
        """Return the count of numbers about its pool that a client sends: 0 unless weights depend on all clients."""
        return statistics_size(len(self.pool)) if len(self.pool) > 1 and self.weights != "equal" else 0

    def before(self, state: PersonalState | None, local: Local) -> PersonalState | None:
        """Return the state with the experts that are trained once, in the client's first turn."""
        if state is None:
            return state
        if "trees" in self.pool and state.trees is None:
            state = dataclasses.replace(state, trees=train_expert("trees", local))
        if "linear" in self.pool and state.linear is None:
            state = dataclasses.replace(state, linear=train_expert("linear", local))
        return state

    def tell(
        self, state: PersonalState | None, assembled: Callable[[], Model], local: Local, common: Vector | None
    ) -> Vector | None:
        """Return how the loss on the client's validation rows depends on the weights, for the server to add up.

        Return None if the weights do not depend on all clients, or with fewer rows than the owner allows.
        """
        rows = len(local.split.validation)
        if not self.told or rows < max(1, local.least_rows):
            return None
        experts = self._experts(state, assembled(), local)
        if len(experts) < len(self.pool):
            return None
        return statistics(*_on_validation_rows(experts, local), _or_equal(common, len(experts)))

    def after(self, state: PersonalState | None, fit: Fit[object], local: Local) -> PersonalState | None:
        """Return the state after a turn of the client; a phase that trains nothing leaves it as it is."""
        if state is None or fit.model is None:
            return state
        state = dataclasses.replace(state, mean=self._averaged(state.mean, leaves(fit.model)))
        if state.alone is None:
            return state
        if len(local.runner.buffers):
            raise InputError("personal.pool=alone is for nets without BatchNorm: drop it, or choose another model")
        alone = local.train(state.alone, stream="alone").weights
        (alone_mean,) = self._averaged(None if state.alone_mean is None else (state.alone_mean,), (alone,))
        return dataclasses.replace(state, alone=alone, alone_mean=alone_mean)

    def model(self, state: PersonalState | None, assembled: Model, local: Local, common: Vector | None = None) -> Model:
        """Return what the client uses, given the model that the method makes and the pool's common weights."""
        experts = self._experts(state, assembled, local)
        if len(experts) == 1:
            return experts[0]
        weights = equal_weights(len(experts))
        if self.weights != "equal" and len(experts) == len(self.pool):
            weights = _or_equal(common, len(experts))
            if self.weights == "own":
                weights = own_weights(*_on_validation_rows(experts, local), weights)
        return Mixture(tuple(experts), weights, _kind(local))

    def _experts(self, state: PersonalState | None, assembled: Model, local: Local) -> list[Model]:
        """Return the models of the pool that are there, or the one model that a client uses without a pool."""
        own = assembled
        if state is not None and state.mean is not None and (self.average or "own" in self.pool):
            own = with_leaves(assembled, state.mean)
        if not self.pool:
            return [_with_prior(own, local)]
        alone = None if state is None else state.alone if state.alone_mean is None else state.alone_mean
        nets: dict[str, Model | None] = {"alone": alone, "own": own, "shared": assembled}
        nets = {name: None if net is None else _with_prior(net, local) for name, net in nets.items()}
        experts = {**nets, "trees": state.trees if state else None, "linear": state.linear if state else None}
        return [expert for name in self.pool if (expert := experts[name]) is not None] or [_with_prior(own, local)]

    def _averaged(self, old: tuple[Vector, ...] | None, new: tuple[Vector, ...]) -> tuple[Vector, ...]:
        """Return the running mean after one more model; one of other shapes begins anew."""
        if not self.average or old is None or [v.shape for v in old] != [v.shape for v in new]:
            return new
        share = np.float32(self.average)
        return tuple(share * before + (1 - share) * now for before, now in zip(old, new, strict=True))


def _kind(local: Local) -> Literal["regression", "multilabel"] | None:
    """Return what the outputs of a mixture are; None: scores of classes."""
    if local.task.classes:
        return None
    return "multilabel" if local.runner.objective.task == "multilabel" else "regression"


def _or_equal(common: Vector | None, experts: int) -> Vector:
    """Return the common weights, or equal ones before there are any."""
    return equal_weights(experts) if common is None or len(common) != experts else common


def _on_validation_rows(experts: Sequence[Model], local: Local) -> tuple[Table, Table | None]:
    """Return each expert's answers for the validation rows: probabilities of the truth, or numbers and the targets.

    An expert that was refitted on these rows answers in its state before that.
    """
    columns = [local.validation_outputs(held_out(expert)).double() for expert in experts]
    targets = local.validation_targets()
    if local.task.classes:
        rows = np.arange(len(targets))
        return np.stack([one.softmax(1).numpy()[rows, targets] for one in columns], 1), None
    wanted = targets.reshape(-1).astype(np.float64)
    if _kind(local) == "multilabel":
        known = ~np.isnan(wanted)
        shares = np.stack([one.sigmoid().numpy().reshape(-1) for one in columns], 1)[known]
        return np.where(wanted[known, None] > 0.5, shares, 1 - shares), None
    return np.stack([one.numpy().reshape(-1) for one in columns], 1), wanted


def _with_prior(model: Model, local: Local) -> Model:
    """Return the model with the client's log prior in the output bias of its nets, where training adds it."""
    if local.runner.prior is None:
        return model
    bias, shift = output_bias(local.layout, local.task.classes), local.runner.prior
    return with_leaves(model, tuple(_shifted(v, bias, shift, local.layout.size) for v in leaves(model)))


def _shifted(vector: Vector, bias: slice, shift: Vector, size: int) -> Vector:
    """Return the weights of a net with `shift` added to its output bias; a vector of another size is no net."""
    if vector.shape != (size,):
        return vector
    out = vector.copy()
    out[bias] += shift
    return out


METHOD_ALONE = PersonalLayer(average=0.0)
"""A client uses the model that the method makes."""
