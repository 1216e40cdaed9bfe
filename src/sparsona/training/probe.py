"""Check before a run that a given model fits its data and can be trained."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from sparsona.data.dataset import Federation
from sparsona.errors import InputError, one_line
from sparsona.layout import parameters_of
from sparsona.training.minibatch import checked_outputs
from sparsona.training.runner import ModelRunner

log = logging.getLogger(__name__)


def called(given: Callable[[], nn.Module]) -> nn.Module:
    """Return the module that a function, or a class without arguments, makes."""
    name = getattr(given, "__name__", type(given).__name__)
    try:
        made = given()
    except TypeError as error:
        fix = "give a module, or a function without arguments that makes one"
        raise InputError(f"the model {name} cannot be made ({one_line(error)}): {fix}") from error
    if not isinstance(made, nn.Module):
        raise InputError(f"the model {name} makes no torch module, but something of type {type(made).__name__}")
    return made


def complete(module: nn.Module) -> nn.Module:
    """Return a module whose weights all have a shape; a lazy one gets them from its first sample."""
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError("the model is scripted or traced, which trains nothing here: give the module it was made from")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"the model's {name} has no shape yet: call the module once on a sample, then give it")
    return module


def probe(runner: ModelRunner, federation: Federation, shape: tuple[int, ...]) -> None:
    """Run the model on two training samples, so that a misfit is reported before any training."""
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
        log.warning(
            "the outputs do not depend on %s%s: freeze unused weights, so that they keep their values", still[0], more
        )


def _without_gradient(runner: ModelRunner, inputs: torch.Tensor, targets: torch.Tensor) -> list[str]:
    """Return the trained weights without influence on the loss, in evaluation mode."""
    named = list(parameters_of(runner.flat.module))
    with torch.enable_grad():
        loss = runner.objective.loss(checked_outputs(runner.flat.module(inputs)), targets).sum()
    if not loss.requires_grad:
        return [name for name, _ in named]
    found = torch.autograd.grad(loss, [parameter for _, parameter in named], allow_unused=True)
    return [name for (name, _), gradient in zip(named, found, strict=True) if gradient is None]
