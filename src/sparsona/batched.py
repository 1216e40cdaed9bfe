"""Tiny models of several clients trained as one: their vectors stacked, a step of all of them one batched product.

A small net spends its time not on arithmetic but on being told what to do, step by step and client by client. Here the
clients of a group take their turns in lockstep: each runs until it asks for a training, then all that ask are trained
together. Sums are taken in another order than by :class:`~sparsona.local.Bench`, so results differ in the last bits;
they follow from who is with whom, which is the same in every engine and for any number of workers.
"""

from __future__ import annotations

import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.func import functional_call, vmap

from sparsona.dataset import Array, Indices
from sparsona.errors import Diverged
from sparsona.local import SCORE_BATCH, Bench, Recipe, Trained, Training
from sparsona.method import Model
from sparsona.objective import Objective
from sparsona.optimizer import NONE, Moments
from sparsona.vector import Layout

R = TypeVar("R")


class Stack(ABC):
    """A module run with many sets of weights at once: row i of the weights on row i of the inputs."""

    @abstractmethod
    def outputs(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """In evaluation mode: (models, weights) and (models, samples, ...) give (models, samples, outputs)."""

    @abstractmethod
    def gradient(self, weights: torch.Tensor, batch: Batch, out: torch.Tensor) -> torch.Tensor:
        """Each model's gradient of the scaled sum of its losses, into `out`; returned are the losses."""

    def descend(self, weights: torch.Tensor, batch: Batch, rate: float, decay: float) -> torch.Tensor | None:
        """A plain gradient step in place, where that is quicker than through a gradient; None where it is not."""
        return None


@dataclass(frozen=True)
class Batch:
    """One step's samples of several clients, filled up to the same number; `counts` says how many are real.

    `scale` is what a sample's loss counts in its client's mean, 0 for the filling.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    scale: torch.Tensor
    counts: torch.Tensor
    objective: Objective

    def errors(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The losses, and the derivative of their scaled sum by the outputs."""
        flat = outputs.detach().flatten(0, 1).requires_grad_()
        losses = self.objective.loss(flat, self.targets)
        (slope,) = torch.autograd.grad(losses, flat, self.scale.flatten())
        return losses.detach().view_as(self.scale), slope.view_as(outputs)


def stack_of(module: nn.Module) -> Stack | str:
    """The module for many sets of weights, or why there is none."""
    layout = Layout.of(module)
    if layout.size != layout.trainable:
        return "its buffers (BatchNorm) belong to one client each"
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return "some of its weights are frozen"
    kinds = {type(leaf) for leaf in module.modules() if next(leaf.children(), None) is None}
    unfit = sorted(kind.__name__ for kind in kinds - FIT)
    if unfit:
        return f"{unfit[0]} is not quicker when clients are batched"
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception:  # noqa: BLE001  (whatever the module does, it cannot be traced)
        return "its forward cannot be traced"
    return Chain.of(graph, dict(module.named_modules()), layout) or Mapped(module, layout)


FIT: set[type] = {
    nn.Linear, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.LeakyReLU, nn.SiLU, nn.ELU, nn.Softplus, nn.Flatten,
    nn.Identity, nn.Dropout, nn.LayerNorm, nn.Embedding,
}  # fmt: skip


@dataclass(frozen=True)
class Linear:
    """Where a linear layer stands in the vector; `bias` is None where it has none."""

    weight: slice
    bias: slice | None
    shape: tuple[int, int]


@dataclass(frozen=True)
class Activation:
    """An element-wise function and its derivative, which is told by the value."""

    value: Callable[[torch.Tensor], torch.Tensor]
    slope: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Drop:
    rate: float


RELU = Activation(torch.relu, lambda value: value > 0)
TANH = Activation(torch.tanh, lambda value: 1 - value * value)
SIGMOID = Activation(torch.sigmoid, lambda value: value * (1 - value))
ACTIVATIONS: dict[Any, Activation] = {
    nn.ReLU: RELU, F.relu: RELU, torch.relu: RELU, "relu": RELU,
    nn.Tanh: TANH, F.tanh: TANH, torch.tanh: TANH, "tanh": TANH,
    nn.Sigmoid: SIGMOID, F.sigmoid: SIGMOID, torch.sigmoid: SIGMOID, "sigmoid": SIGMOID,
}  # fmt: skip


class Chain(Stack):
    """Linear layers one after another, with a backward pass of its own: a handful of batched products a step."""

    def __init__(self, steps: Sequence[Linear | Activation | Drop]) -> None:
        self._steps = tuple(steps)

    @classmethod
    def of(cls, graph: fx.Graph, modules: dict[str, nn.Module], layout: Layout) -> Chain | None:
        """None where the module is not such a chain: each step on the last one's result, each weight used once."""
        steps: list[Linear | Activation | Drop] = []
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
        with torch.no_grad():
            return self._forward(weights, inputs, None)

    def gradient(self, weights: torch.Tensor, batch: Batch, out: torch.Tensor) -> torch.Tensor:
        def into(layer: Linear, errors: torch.Tensor, inputs: torch.Tensor) -> None:
            torch.bmm(errors.transpose(1, 2), inputs, out=_matrix(out, layer))
            if layer.bias is not None:
                torch.sum(errors, 1, out=out[:, layer.bias])

        return self._backward(weights, batch, into)

    def descend(self, weights: torch.Tensor, batch: Batch, rate: float, decay: float) -> torch.Tensor:
        keep = 1 - rate * decay

        def into(layer: Linear, errors: torch.Tensor, inputs: torch.Tensor) -> None:
            _matrix(weights, layer).baddbmm_(errors.transpose(1, 2), inputs, beta=keep, alpha=-rate)
            if layer.bias is not None:
                bias = weights[:, layer.bias]
                (bias.mul_(keep) if decay else bias).sub_(errors.sum(1), alpha=rate)

        return self._backward(weights, batch, into)

    def _forward(self, weights: torch.Tensor, inputs: torch.Tensor, memory: list[torch.Tensor] | None) -> torch.Tensor:
        """The outputs; into `memory` what the backward pass needs: for a layer its input, else the slope."""
        now = inputs.flatten(2)
        for step in self._steps:
            if isinstance(step, Linear):
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
            elif memory is not None:
                memory.append(torch.empty_like(now).bernoulli_(1 - step.rate).div_(1 - step.rate))
                now = now * memory[-1]
        return now

    def _backward(
        self, weights: torch.Tensor, batch: Batch, into: Callable[[Linear, torch.Tensor, torch.Tensor], None]
    ) -> torch.Tensor:
        memory: list[torch.Tensor] = []
        with torch.no_grad():
            outputs = self._forward(weights, batch.inputs, memory)
        losses, errors = batch.errors(outputs)
        with torch.no_grad():
            for place in range(len(self._steps) - 1, -1, -1):
                step = self._steps[place]
                if isinstance(step, Linear):
                    before = torch.bmm(errors, _matrix(weights, step)) if place else errors
                    into(step, errors, memory[place])
                    errors = before
                else:
                    errors = errors * memory[place]
        return losses


def _matrix(vectors: torch.Tensor, layer: Linear) -> torch.Tensor:
    return vectors[:, layer.weight].view(-1, *layer.shape)


def _step(
    node: fx.Node, modules: dict[str, nn.Module], layout: Layout, used: list[str]
) -> list[Linear | Activation | Drop] | None:
    """What a node of the graph does to its input: nothing, or one step. None where that is not known here."""
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
        return [Linear(weight.slice, bias, (weight.shape[0], weight.shape[1]))]
    if kind in ACTIVATIONS and (plain or (kind is F.relu and not node.kwargs.get("inplace"))):
        return [ACTIVATIONS[kind]]
    if kind is nn.Identity:
        return []
    if kind is nn.Dropout:
        dropout = modules[str(node.target)]
        assert isinstance(dropout, nn.Dropout)
        return [Drop(dropout.p)] if dropout.p else []
    if kind is nn.Flatten:
        flatten = modules[str(node.target)]
        assert isinstance(flatten, nn.Flatten)
        return [] if (flatten.start_dim, flatten.end_dim) == (1, -1) else None
    if kind in ("flatten", torch.flatten):
        return [] if node.args[1:] == (1,) and not node.kwargs else None
    return None


class Mapped(Stack):
    """Any traceable module of layers that batch well, through torch.func.vmap."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self._module = module
        self._layout = layout

    def _call(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        named = {t.name: weights[:, t.slice].view(-1, *t.shape) for t in self._layout.tensors}

        def one(parameters: dict[str, torch.Tensor], samples: torch.Tensor) -> Any:
            return functional_call(self._module, parameters, (samples,))

        outputs: torch.Tensor = vmap(one, randomness="different")(named, inputs)
        return outputs

    def outputs(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        self._module.eval()
        with torch.no_grad():
            return self._call(weights, inputs)

    def gradient(self, weights: torch.Tensor, batch: Batch, out: torch.Tensor) -> torch.Tensor:
        self._module.train()
        leaf = weights.detach().requires_grad_()
        outputs = self._call(leaf, batch.inputs)
        losses = batch.objective.loss(outputs.flatten(0, 1), batch.targets)
        (slope,) = torch.autograd.grad(losses, leaf, batch.scale.flatten())
        out.copy_(slope)
        return losses.detach().view_as(batch.scale)


@dataclass(frozen=True)
class Kind:
    """What trainings must have in common to be done together."""

    recipe: Recipe
    rate: float
    apart: bool


class Trainer:
    """Trains and tests many clients' models at once on a bench."""

    def __init__(self, bench: Bench, stack: Stack) -> None:
        self._bench = bench
        self._stack = stack

    def train(self, trainings: Sequence[Training]) -> list[Trained | Diverged]:
        """The trainings of several clients, whatever they have in common; an answer for each."""
        kinds: dict[Kind, list[int]] = {}
        for i, training in enumerate(trainings):
            apart = training.proximal is not None and training.proximal.apart
            kinds.setdefault(Kind(training.recipe, training.rate, apart), []).append(i)
        answers: dict[int, Trained | Diverged] = {}
        for kind, members in kinds.items():
            batches = [list(trainings[i].batches) for i in members]
            order = sorted(range(len(members)), key=lambda k: -len(batches[k]))
            ours = [trainings[members[k]] for k in order]
            with ours[0].seeded:
                trained = self._train(kind, ours, [batches[k] for k in order])
            answers |= dict(zip((members[k] for k in order), trained, strict=True))
        return [answers[i] for i in range(len(trainings))]

    def _train(
        self, kind: Kind, trainings: list[Training], batches: list[list[tuple[Indices, Array | None]]]
    ) -> list[Trained | Diverged]:
        """`trainings` come with the longest first, so that those who are still at it are always the first rows."""
        weights = _rows([training.start for training in trainings])
        steps = _Steps(kind, trainings, weights)
        total = torch.zeros(len(trainings))
        counts = [len(own) for own in batches]
        for number in range(counts[0] if counts else 0):
            active = next((row for row, count in enumerate(counts) if count <= number), len(counts))
            batch = self._batch([own[number] for own in batches[:active]])
            for _ in range(kind.recipe.repeats):
                total[:active] += steps.take(self._stack, weights[:active], batch)
        samples = [kind.recipe.repeats * sum(len(indices) for indices, _ in own) for own in batches]
        finite = (torch.isfinite(weights).all(1) & torch.isfinite(total)).tolist()
        losses = (total / torch.tensor(samples).clamp(min=1)).tolist()
        return [
            Trained(weights[row].numpy().copy(), losses[row], samples[row], steps.moments(row))
            if finite[row]
            else Diverged(
                f"the loss is {losses[row]:g} after {samples[row]} samples at learning rate {kind.rate:g}: "
                "lower it, or set clip"
            )
            for row in range(len(trainings))
        ]

    def _batch(self, batches: Sequence[tuple[Indices, Array | None]]) -> Batch:
        longest = max(len(indices) for indices, _ in batches)
        chosen = np.empty((len(batches), longest), np.int64)
        scale = np.zeros((len(batches), longest), np.float32)
        for row, (indices, importance) in enumerate(batches):
            count = len(indices)
            chosen[row, :count], chosen[row, count:] = indices, indices[0]
            scale[row, :count] = (1.0 if importance is None else importance) / np.float32(count)
        inputs, targets = self._bench.batch(chosen.reshape(-1))
        shaped = inputs.reshape(len(batches), longest, *inputs.shape[1:])
        counts = torch.tensor([len(indices) for indices, _ in batches])
        return Batch(shaped, targets, torch.from_numpy(scale), counts, self._bench.objective)

    def answers(self, models: Sequence[Array], samples: Sequence[Indices]) -> list[Array]:
        """Each model's predictions for its samples."""
        weights = _rows(models)
        longest = max((len(indices) for indices in samples), default=0)
        parts: list[torch.Tensor] = []
        for start in range(0, longest, SCORE_BATCH):
            width = min(SCORE_BATCH, longest - start)
            chosen = np.zeros((len(samples), width), np.int64)
            for row, indices in enumerate(samples):
                piece = indices[start : start + width]
                chosen[row, : len(piece)] = piece
            inputs, _ = self._bench.batch(chosen.reshape(-1))
            shaped = inputs.reshape(len(samples), width, *inputs.shape[1:])
            parts.append(self._stack.outputs(weights, shaped))
        if not parts:
            return [np.zeros(0, np.float32) for _ in samples]
        outputs = torch.cat(parts, 1)
        predictions = self._bench.objective.predict(outputs.flatten(0, 1)).numpy()
        rows = predictions.reshape(len(samples), longest, *predictions.shape[1:])
        return [row[: len(indices)] for row, indices in zip(rows, samples, strict=True)]


def _rows(vectors: Sequence[Array]) -> torch.Tensor:
    return torch.from_numpy(np.stack(vectors).astype(np.float32, copy=False))


class _Steps:
    """What :meth:`Bench.train` does with a gradient, for many clients at once, row by row."""

    def __init__(self, kind: Kind, trainings: Sequence[Training], weights: torch.Tensor) -> None:
        recipe = kind.recipe
        self._kind = kind
        self._counts = [training.moments.step if training.moments else 0 for training in trainings]
        self._gradient = torch.zeros_like(weights)
        self._mask: torch.Tensor | None = None
        if any(training.mask is not None for training in trainings):
            full = np.ones(weights.shape[1], np.bool_)
            self._mask = _rows([full if training.mask is None else training.mask for training in trainings])
        self._towards: torch.Tensor | None = None
        pulls = [training.proximal for training in trainings]
        if any(pull is not None for pull in pulls):
            self._towards = _rows([
                training.start if training.proximal is None else training.proximal.towards for training in trainings
            ])  # fmt: skip
            self._strength = torch.tensor([[0.0 if pull is None else pull.strength] for pull in pulls])
        adam = recipe.optimizer == "adam"
        self._first = _memory([t.moments.first if t.moments else NONE for t in trainings], weights)
        self._second = _memory([t.moments.second if t.moments else NONE for t in trainings], weights)
        self._remembers = adam or recipe.momentum > 0
        self._plain = not (self._remembers or recipe.clip or self._mask is not None or self._towards is not None)

    def take(self, stack: Stack, weights: torch.Tensor, batch: Batch) -> torch.Tensor:
        """One step of the first rows; returned are the sums of their losses."""
        kind, recipe, rows = self._kind, self._kind.recipe, len(weights)
        for row in range(rows):
            self._counts[row] += 1
        losses = stack.descend(weights, batch, kind.rate, recipe.weight_decay) if self._plain else None
        if losses is None:
            gradient = self._gradient[:rows]
            losses = stack.gradient(weights, batch, gradient)
            with torch.no_grad():
                self._apply(weights, gradient)
        return (losses * batch.scale).sum(1) * batch.counts

    def _apply(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        kind, recipe, rows = self._kind, self._kind.recipe, len(weights)
        mask = None if self._mask is None else self._mask[:rows]
        towards = None if self._towards is None else self._towards[:rows]
        if towards is not None and not kind.apart:
            gradient.add_((weights - towards).mul_(self._strength[:rows]))
        if mask is not None:
            gradient.mul_(mask)
        if recipe.clip is not None:
            gradient.mul_((recipe.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0))
        if recipe.weight_decay:
            gradient.add_(weights if mask is None else weights * mask, alpha=recipe.weight_decay)
        if recipe.optimizer == "adam":
            self._adam(weights, gradient)
        elif self._remembers:
            weights.add_(self._first[:rows].mul_(recipe.momentum).add_(gradient), alpha=-kind.rate)
        else:
            weights.add_(gradient, alpha=-kind.rate)
        if towards is not None and kind.apart:
            pull = (weights - towards).mul_(self._strength[:rows])
            weights.add_(pull if mask is None else pull.mul_(mask), alpha=-kind.rate)

    def _adam(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        rows = len(weights)
        counts = torch.tensor(self._counts[:rows], dtype=torch.float64).unsqueeze(1)
        first, second = self._first[:rows], self._second[:rows]
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = second.sqrt().div_((1 - 0.999**counts).sqrt().float()).add_(1e-8)
        weights.addcdiv_(first * (-self._kind.rate / (1 - 0.9**counts)).float(), root)

    def moments(self, row: int) -> Moments:
        if not self._remembers:
            return Moments(self._counts[row], NONE, NONE)
        second = self._second[row].numpy().copy() if self._kind.recipe.optimizer == "adam" else NONE
        return Moments(self._counts[row], self._first[row].numpy().copy(), second)


def _memory(saved: Sequence[Array], like: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(like)
    for row, vector in enumerate(saved):
        if len(vector):
            out[row] = torch.from_numpy(vector)
    return out


@dataclass(frozen=True)
class Testing:
    """Models to be tested together with those of other clients."""

    model: Array
    samples: Indices


class Seat(Bench):
    """The bench as one client of the group sees it: asking for a training lets the others go on until they ask, too."""

    def __init__(self, bench: Bench, turn: Turn[Any]) -> None:
        self.__dict__.update(bench.__dict__)
        self._turn = turn

    def perform(self, training: Training) -> Trained:
        if training.companion is not None or training.recipe.augment:
            return super().perform(training)
        trained: Trained | Diverged = self._turn.ask(training)
        if isinstance(trained, Diverged):
            raise trained
        self.count(trained.examples, training.mask)
        self.loss = trained.loss
        return trained

    def _answers(self, model: Model, indices: Indices, batch: int) -> Array:
        if not isinstance(model, np.ndarray) or not len(indices):
            return super()._answers(model, indices, batch)
        found: Array = self._turn.ask(Testing(model, indices))
        return found


def taken() -> threading.Lock:
    """A lock that somebody must release before it can be acquired: the lightest way to pass the move on."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Turn(Generic[R]):
    """One client's turn, in a thread that runs only while it is this client's move."""

    def __init__(self) -> None:
        self._move = taken()
        self._work: Callable[[Turn[R]], R] | None = None
        self.then: Callable[[], object] = lambda: None
        self.request: Training | Testing | None = None
        self.answer: Any = None
        self.result: R | None = None
        self.error: BaseException | None = None
        self.over = True
        threading.Thread(target=self._live, daemon=True).start()

    def begin(self, work: Callable[[Turn[R]], R]) -> None:
        self._work, self.over, self.request, self.result, self.error = work, False, None, None, None

    def move(self) -> None:
        self._move.release()

    def ask(self, request: Training | Testing) -> Any:
        """Called within the turn: wait for what only the group can do."""
        self.request = request
        self.then()
        self._move.acquire()
        answer, self.answer, self.request = self.answer, None, None
        return answer

    def _live(self) -> None:
        torch.set_num_threads(torch.get_num_threads())
        while True:
            self._move.acquire()
            work = self._work
            if work is None:
                return
            try:
                self.result = work(self)
            except BaseException as error:  # noqa: BLE001  (raised again where the group was started)
                self.error = error
            self.over = True
            self.then()

    def leave(self) -> None:
        self._work = None
        self.move()


class Group:
    """Runs the turns of a few clients in lockstep."""

    def __init__(self, bench: Bench, stack: Stack) -> None:
        self._bench = bench
        self._trainer = Trainer(bench, stack)
        self._back = taken()
        bench.count(0)  # what a sample costs is found out once, not in every seat
        self._turns: list[Turn[Any]] = []

    def run(self, works: Sequence[Callable[[Bench], R]]) -> list[R]:
        """What each of the works returns, called with a bench of its own; the first error, where there are some."""
        turns: list[Turn[R]] = self._turns[: len(works)]
        turns += [Turn() for _ in range(len(works) - len(turns))]
        self._turns = []  # an interrupted group leaves turns that nobody will finish
        for turn, work in zip(turns, works, strict=True):
            turn.begin(_seated(work, self._bench))
        going = turns
        while going:
            for turn, following in zip(going, [*going[1:], None], strict=True):
                turn.then = following.move if following else self._back.release
            going[0].move()
            self._back.acquire()
            going = [turn for turn in going if not turn.over]
            self._serve(going)
        self._turns = list(turns)
        for turn in turns:
            if turn.error is not None:
                raise turn.error
        return [turn.result for turn in turns]  # type: ignore[misc]

    def _serve(self, turns: Sequence[Turn[Any]]) -> None:
        trainings = [turn for turn in turns if isinstance(turn.request, Training)]
        tests = [turn for turn in turns if isinstance(turn.request, Testing)]
        request = operator.attrgetter("request")
        if trainings:
            for turn, trained in zip(trainings, self._trainer.train(list(map(request, trainings))), strict=True):
                turn.answer = trained
        if tests:
            models, samples = zip(*((t.request.model, t.request.samples) for t in tests), strict=True)  # type: ignore[union-attr]
            for turn, answers in zip(tests, self._trainer.answers(models, samples), strict=True):
                turn.answer = answers


def _seated(work: Callable[[Bench], R], bench: Bench) -> Callable[[Turn[R]], R]:
    return lambda turn: work(Seat(bench, turn))
