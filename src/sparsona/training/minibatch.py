"""The batch of a method's own step, and its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import torch

from sparsona.data.dataset import Indices
from sparsona.errors import InputError
from sparsona.layout import parameters_of
from sparsona.message import Mask, Vector
from sparsona.privacy.mechanism import Query
from sparsona.training.config import TrainConfig
from sparsona.training.step import Proximal, StepRule
from sparsona.training.vector import tensor_of, view_of

if TYPE_CHECKING:
    from sparsona.training.runner import ModelRunner


NextQuery: TypeAlias = Callable[[], tuple[Indices, Query]]
"""Returns the next query of a turn with its samples."""


class Minibatch:
    """The samples of one step, and derivatives of their mean loss in training mode.

    The config's weight decay is part of the loss. The fused trainer computes gradients if there is one. With `ask`,
    each gradient is the answer to a new query with its own samples, and no other derivative is available.
    """

    def __init__(
        self, runner: ModelRunner, indices: Indices, config: TrainConfig, ask: NextQuery | None = None
    ) -> None:
        self._ask = ask
        self._runner = runner
        self._config = config
        self._indices = indices
        self._fused = None if config.augment else runner._fused
        self.total = torch.zeros((), device=runner.device)
        self.seen = 0

    @cached_property
    def _samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets. An augmented batch is drawn once, for all derivatives."""
        return self._runner.batch(self._indices, self._config.augment)

    def gradient(self, weights: Vector, *, mask: Mask | None = None, proximal: Proximal | None = None) -> Vector:
        """The gradient at `weights` that the step rule gives to its optimiser (parts 1 to 4 of the rule).

        Only entries of `mask` are not zero. `proximal` is part of the loss; one that is `apart` is refused.
        """
        if proximal is not None and proximal.apart:
            raise InputError("a gradient has no proximal term apart from the loss: take its step in your own step")
        if self._ask is not None:
            flat = self._runner.flat
            flat.load(weights)
            indices, query = self._ask()
            at, gradient = flat.weights, self._runner.answer(indices, query, mask, self._config.augment)
            self._runner.count(round(query.expected))
        elif self._fused is not None:
            found, loss = self._fused.gradient(weights, self._indices)
            self._count(len(self._indices), loss * len(self._indices))
            at, gradient = view_of(weights), torch.from_numpy(found)
        else:
            flat = self._runner.flat
            flat.load(weights)
            flat.gradient.zero_()
            torch.autograd.backward(self._loss())
            at, gradient = flat.weights, flat.gradient.clone()
        with torch.no_grad():
            StepRule(at, self._config, self._config.lr, mask=mask, proximal=proximal).prepare(gradient)
        prepared: Vector = gradient.cpu().numpy()
        return prepared

    def blended(self, own: Vector, shared: Vector, share: float) -> tuple[Vector, float]:
        """The gradient at `own` of the loss of share f(own) + (1 - share) f(shared), and its derivative by `share`.

        f stands for the model's outputs. The gradient has the config's clipping and decay, as that of :meth:`gradient`.
        """
        runner, flat = self._runner, self._runner.flat
        inputs, targets = self._raw()
        flat.load(shared)
        with torch.no_grad():
            fixed = checked_outputs(flat.module(inputs)).clone()
        runner.count(len(targets), passes=1)
        flat.load(own)
        flat.gradient.zero_()
        weight = torch.tensor(share, device=runner.device, requires_grad=True)
        outputs = weight * checked_outputs(flat.module(inputs)) + (1 - weight) * fixed
        losses = runner.objective.loss(runner.shifted(outputs), targets)
        self._count(len(losses), losses.detach().sum())
        torch.autograd.backward(losses.mean())
        gradient = flat.gradient.clone()
        with torch.no_grad():
            StepRule(flat.weights, self._config, self._config.lr).prepare(gradient)
        assert weight.grad is not None
        found: Vector = gradient.cpu().numpy()
        return found, float(weight.grad)

    def curvature(self, weights: Vector, direction: Vector) -> Vector:
        """The product of the Hessian at `weights` with `direction`."""
        flat, layout = self._runner.flat, self._runner.layout
        flat.load(weights)
        parameters = [parameter for _, parameter in parameters_of(flat.module)]
        first = torch.autograd.grad(self._loss(), parameters, create_graph=True, materialize_grads=True)
        towards = tensor_of(direction[: layout.size], self._runner.device)
        slope = torch.dot(torch.cat([g.reshape(-1) for g in first]), towards)
        second = torch.autograd.grad(slope, parameters, materialize_grads=True)
        product = torch.cat([g.reshape(-1) for g in second]) + self._config.weight_decay * towards
        found: Vector = product.detach().cpu().numpy()
        return found

    def _raw(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._ask is not None:
            raise InputError("with a privacy budget a batch gives gradients only: this method has no private form")
        return self._samples

    def _loss(self) -> torch.Tensor:
        runner = self._runner
        inputs, targets = self._raw()
        losses = runner.loss_of(checked_outputs(runner.flat.module(inputs)), targets)
        self._count(len(losses), losses.detach().sum())
        return losses.mean()

    def _count(self, samples: int, loss: torch.Tensor | float) -> None:
        self.total = self.total + loss
        self.seen += samples
        self._runner.count(samples)


Vectors: TypeAlias = tuple[Vector, ...]
Step: TypeAlias = Callable[[Vectors, tuple[Minibatch, ...]], Vectors]
"""One step of a method: the vectors that it moves and as many independent batches as it asked for."""


def checked_outputs(outputs: object) -> torch.Tensor:
    """Return a model's output tensor, also from an object with `logits`; half precision becomes float32."""
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
    if not isinstance(found, torch.Tensor):
        kind = type(outputs).__name__
        raise InputError(f"the model returns a {kind} without logits: its forward must return one tensor of outputs")
    return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found
