"""The forward and backward pass of many clients' models at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.func import functional_call, vmap

from sparsona.layout import Layout
from sparsona.training.objective import Objective


class Stack(ABC):
    """A module run with many sets of weights at once: row i of the weights on row i of the inputs."""

    random = False
    """Whether training draws random numbers. If so, a batch needs a generator for every row."""

    @abstractmethod
    def outputs(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """(models, samples, outputs) in evaluation mode, of (models, weights) and (models, samples, ...)."""

    @abstractmethod
    def gradient(self, weights: torch.Tensor, batch: Batch, out: torch.Tensor) -> torch.Tensor:
        """Write each model's gradient of the scaled sum of its losses to `out`; return the losses."""

    def descend(self, weights: torch.Tensor, batch: Batch, rate: float, decay: float) -> torch.Tensor | None:
        """Take a gradient step in place, if that is faster than to compute the gradient first; else return None."""
        return None


@dataclass(frozen=True)
class Batch:
    """One step's samples of several clients, padded to the same number; `counts` says how many are real.

    `scale` is the weight of a sample's loss in its client's mean, 0 for padding. `labels` says that the objective is
    the cross-entropy and that every target is a class: its derivative then needs no autograd. `streams` are the
    clients' generators, where random numbers are drawn.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    scale: torch.Tensor
    counts: torch.Tensor
    objective: Objective
    labels: bool = False
    streams: Sequence[torch.Generator] = ()

    def dropout(self, like: torch.Tensor, rate: float) -> torch.Tensor:
        """The factors of dropout: each client draws for its real samples, as it would alone."""
        out = torch.zeros_like(like)
        for row, count, stream in zip(out, self.counts.tolist(), self.streams, strict=True):
            row[:count].bernoulli_(1 - rate, generator=stream)
        return out.div_(1 - rate)

    def errors(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The losses, and the derivative of their scaled sum with respect to the outputs."""
        if self.labels:
            with torch.no_grad():
                logs = torch.log_softmax(outputs.flatten(0, 1), 1)
                rows = self.targets.unsqueeze(1)
                losses = logs.gather(1, rows).neg_().view_as(self.scale)
                slope = logs.exp_().scatter_add_(1, rows, torch.full(rows.shape, -1.0))
                return losses, slope.view_as(outputs).mul_(self.scale.unsqueeze(2))
        flat = outputs.detach().flatten(0, 1).requires_grad_()
        losses = self.objective.loss(flat, self.targets)
        (slope,) = torch.autograd.grad(losses, flat, self.scale.flatten())
        return losses.detach().view_as(self.scale), slope.view_as(outputs)


def stack_of(module: nn.Module) -> Stack | str:
    """The module for many sets of weights, or the reason why it cannot be batched."""
    layout = Layout.of(module)
    if Layout.of_buffers(module).size:
        return "its buffers (BatchNorm) belong to one client each"
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return "some of its weights are frozen"
    kinds = {type(leaf) for leaf in module.modules() if next(leaf.children(), None) is None}
    unfit = sorted(kind.__name__ for kind in kinds - FIT)
    if unfit:
        return f"{unfit[0]} is not quicker when clients are batched"
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception:  # noqa: BLE001 - the tracer raises whatever the module's code does
        return "its forward cannot be traced"
    modules = dict(module.named_modules())
    chain = LinearStack.of(graph, modules, layout)
    if chain is None and any(_draws(node, modules) for node in graph.nodes):
        return "it draws random numbers, which are batched only for a chain of linear layers"
    return chain or VmapStack(module, layout)


FIT: set[type] = {
    nn.Linear, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.LeakyReLU, nn.SiLU, nn.ELU, nn.Softplus, nn.Flatten,
    nn.Identity, nn.Dropout, nn.LayerNorm, nn.Embedding,
}  # fmt: skip


@dataclass(frozen=True)
class LinearPlace:
    """The place of a linear layer in the vector; `bias` is None where it has none."""

    weight: slice
    bias: slice | None
    shape: tuple[int, int]


@dataclass(frozen=True)
class Activation:
    """An element-wise function, and its derivative as a function of its value."""

    value: Callable[[torch.Tensor], torch.Tensor]
    slope: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class DropoutRate:
    """A dropout layer: each value is dropped with this probability."""

    rate: float


RELU = Activation(torch.relu, lambda value: value > 0)
TANH = Activation(torch.tanh, lambda value: 1 - value * value)
SIGMOID = Activation(torch.sigmoid, lambda value: value * (1 - value))
ACTIVATIONS: dict[Any, Activation] = {
    nn.ReLU: RELU, F.relu: RELU, torch.relu: RELU, "relu": RELU,
    nn.Tanh: TANH, F.tanh: TANH, torch.tanh: TANH, "tanh": TANH,
    nn.Sigmoid: SIGMOID, F.sigmoid: SIGMOID, torch.sigmoid: SIGMOID, "sigmoid": SIGMOID,
}  # fmt: skip


class LinearStack(Stack):
    """A chain of linear layers with its own backward pass: a step is a handful of batched products."""

    def __init__(self, steps: Sequence[LinearPlace | Activation | DropoutRate]) -> None:
        self._steps = tuple(steps)
        self.random = any(isinstance(step, DropoutRate) for step in steps)

    @classmethod
    def of(cls, graph: fx.Graph, modules: dict[str, nn.Module], layout: Layout) -> LinearStack | None:
        """None where the module is no such chain: each layer takes the last one's result, each weight is used once."""
        steps: list[LinearPlace | Activation | DropoutRate] = []
        used: list[str] = []
        previous: fx.Node | None = None
        for node in graph.nodes:
            if node.op == "output":
                same = len(used) == len(set(used)) and set(used) == {tensor.name for tensor in layout.tensors}
                return cls(steps) if node.args == (previous,) and same else None
            if node.op != "placeholder":
                if previous is None or node.all_input_nodes != [previous] or node.args[0] is not previous:
                    return None
                step = _step(node, modules, layout, used)
                if step is None:
                    return None
                steps += step
            elif previous is not None:
                return None
            previous = node
        return None

    def outputs(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of every client's net for its inputs."""
        with torch.no_grad():
            return self._forward(weights, inputs)

    def gradient(self, weights: torch.Tensor, batch: Batch, out: torch.Tensor) -> torch.Tensor:
        """Every client's gradient, written into `out`."""

        def into(layer: LinearPlace, errors: torch.Tensor, inputs: torch.Tensor) -> None:
            torch.bmm(errors.transpose(1, 2), inputs, out=_matrix(out, layer))
            if layer.bias is not None:
                torch.sum(errors, 1, out=out[:, layer.bias])

        return self._backward(weights, batch, into)

    def descend(self, weights: torch.Tensor, batch: Batch, rate: float, decay: float) -> torch.Tensor:
        """One plain gradient step of every client, in place."""
        keep = 1 - rate * decay

        def into(layer: LinearPlace, errors: torch.Tensor, inputs: torch.Tensor) -> None:
            _matrix(weights, layer).baddbmm_(errors.transpose(1, 2), inputs, beta=keep, alpha=-rate)
            if layer.bias is not None:
                bias = weights[:, layer.bias]
                (bias.mul_(keep) if decay else bias).sub_(errors.sum(1), alpha=rate)

        return self._backward(weights, batch, into)

    def _forward(
        self,
        weights: torch.Tensor,
        inputs: torch.Tensor,
        training: Batch | None = None,
        memory: list[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """The outputs. `memory` gets what the backward pass needs: a layer's input, or an activation's derivative."""
        now = inputs.flatten(2)
        for step in self._steps:
            if isinstance(step, LinearPlace):
                if memory is not None:
                    memory.append(now)
                matrix = _matrix(weights, step).transpose(1, 2)
                now = torch.bmm(now, matrix) if step.bias is None else torch.baddbmm(
                    weights[:, step.bias].unsqueeze(1), now, matrix
                )  # fmt: skip
            elif isinstance(step, Activation):
                now = step.value(now)
                if memory is not None:
                    memory.append(step.slope(now))
            elif memory is not None and training is not None:
                memory.append(training.dropout(now, step.rate))
                now = now * memory[-1]
        return now

    def _backward(
        self, weights: torch.Tensor, batch: Batch, into: Callable[[LinearPlace, torch.Tensor, torch.Tensor], None]
    ) -> torch.Tensor:
        memory: list[torch.Tensor] = []
        with torch.no_grad():
            outputs = self._forward(weights, batch.inputs, batch, memory)
        losses, errors = batch.errors(outputs)
        with torch.no_grad():
            for place in range(len(self._steps) - 1, -1, -1):
                step = self._steps[place]
                if isinstance(step, LinearPlace):
                    before = torch.bmm(errors, _matrix(weights, step)) if place else errors
                    into(step, errors, memory[place])
                    errors = before
                else:
                    errors = errors * memory[place]
        return losses


def _matrix(vectors: torch.Tensor, layer: LinearPlace) -> torch.Tensor:
    return vectors[:, layer.weight].view(-1, *layer.shape)


def _step(
    node: fx.Node, modules: dict[str, nn.Module], layout: Layout, used: list[str]
) -> list[LinearPlace | Activation | DropoutRate] | None:
    """The step that a node of the graph takes, an empty list where it changes nothing, None where it is unknown."""
    kind: Any = type(modules[str(node.target)]) if node.op == "call_module" else node.target
    plain = len(node.args) == 1 and not node.kwargs
    if kind is nn.Linear:
        name = str(node.target)
        weight = layout[f"{name}.weight"]
        used.append(weight.name)
        bias = None
        if modules[name].bias is not None:
            used.append(f"{name}.bias")
            bias = layout[f"{name}.bias"].slice
        return [LinearPlace(weight.slice, bias, (weight.shape[0], weight.shape[1]))]
    if kind in ACTIVATIONS and (plain or (kind is F.relu and not node.kwargs.get("inplace"))):
        return [ACTIVATIONS[kind]]
    if kind is nn.Identity:
        return []
    if kind is nn.Dropout:
        dropout = modules[str(node.target)]
        assert isinstance(dropout, nn.Dropout)
        return [DropoutRate(dropout.p)] if dropout.p else []
    if kind is nn.Flatten:
        flatten = modules[str(node.target)]
        assert isinstance(flatten, nn.Flatten)
        return [] if (flatten.start_dim, flatten.end_dim) == (1, -1) else None
    if kind in ("flatten", torch.flatten):
        return [] if node.args[1:] == (1,) and not node.kwargs else None
    return None


def _draws(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether a node of the graph draws random numbers in training. Torch tags the operations that do."""
    if node.op == "call_module":
        dropout = modules[str(node.target)]
        return isinstance(dropout, nn.Dropout) and dropout.p > 0
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    found = getattr(torch.ops.aten, name, None) if node.op.startswith("call") else None
    kinds = [] if found is None else [getattr(found, kind) for kind in found.overloads()]
    return any(torch.Tag.nondeterministic_seeded in kind.tags for kind in kinds)


class VmapStack(Stack):
    """Any traceable module of layers that batch well and draw no random numbers, through torch.func.vmap."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self._module = module
        self._layout = layout

    def _call(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        named = {t.name: weights[:, t.slice].view(-1, *t.shape) for t in self._layout.tensors}

        def one(parameters: dict[str, torch.Tensor], samples: torch.Tensor) -> Any:
            return functional_call(self._module, parameters, (samples,))

        outputs: torch.Tensor = vmap(one)(named, inputs)
        return outputs

    def outputs(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of every client's net for its inputs."""
        self._module.eval()
        with torch.no_grad():
            return self._call(weights, inputs)

    def gradient(self, weights: torch.Tensor, batch: Batch, out: torch.Tensor) -> torch.Tensor:
        """Every client's gradient, written into `out`."""
        self._module.train()
        leaf = weights.detach().requires_grad_()
        outputs = self._call(leaf, batch.inputs)
        losses = batch.objective.loss(outputs.flatten(0, 1), batch.targets)
        (slope,) = torch.autograd.grad(losses, leaf, batch.scale.flatten())
        out.copy_(slope)
        return losses.detach().view_as(batch.scale)
