"""Whether a model fits its data and can be trained: tried on two samples before a run begins."""

from __future__ import annotations

import logging

import numpy as np
import torch

from sparsona.data.dataset import Federation
from sparsona.errors import InputError
from sparsona.layout import parameters_of
from sparsona.training.minibatch import checked_outputs
from sparsona.training.runner import ModelRunner

log = logging.getLogger(__name__)


def probe(runner: ModelRunner, federation: Federation, shape: tuple[int, ...]) -> None:
    """Ask the model about two training samples, so that one that does not fit is named before anything is trained."""
    data = federation.data
    try:
        inputs, targets = runner.batch(np.resize(next(iter(federation.splits.values())).train, 2))
        answer = runner.forward(runner.flat.read(), inputs)
        losses = runner.objective.loss(answer, targets)
        still = _without_gradient(runner, inputs, targets)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"the model does not fit {data.name}, whose samples have shape {shape}: {reason}") from None
    if data.classes and (answer.ndim != 2 or answer.shape[1] != data.classes):
        found = tuple(answer.shape[1:])
        raise InputError(
            f"the model gives outputs of shape {found}, but {data.name} has {data.classes} classes: "
            "give it one output per class, or declare all classes with classes="
        )
    if losses.shape != (2,):
        raise InputError(f"the loss must be one number an example, not of shape {tuple(losses.shape)} for two examples")
    if len(still) == len(runner.layout.tensors):
        raise InputError("no weight of the model gets a gradient: its forward detaches them, or does not use them")
    if still:
        more = f" and {len(still) - 1} more" if len(still) > 1 else ""
        log.warning("the outputs do not depend on %s%s: freeze what is not used, so that it stays", still[0], more)


def _without_gradient(runner: ModelRunner, inputs: torch.Tensor, targets: torch.Tensor) -> list[str]:
    """The trained weights on which the loss does not depend, in evaluation mode."""
    named = list(parameters_of(runner.flat.module))
    with torch.enable_grad():
        loss = runner.objective.loss(checked_outputs(runner.flat.module(inputs)), targets).sum()
    if not loss.requires_grad:
        return [name for name, _ in named]
    found = torch.autograd.grad(loss, [parameter for _, parameter in named], allow_unused=True)
    return [name for (name, _), gradient in zip(named, found, strict=True) if gradient is None]
