"""pFedGate's gating layer: it turns a batch into one scale per block of the model, most of them zero.

Chen et al., "Efficient Personalized Federated Learning via Sparse Model-Adaptation", ICML 2023; SwitchNorm is Luo et
al., "Differentiable Learning-to-Normalize via Switchable Normalization", ICLR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import Mask, Vector
from sparsona.methods.pfedgate.blocks import Budget, Cut
from sparsona.ops.moments import Moments
from sparsona.training.chain import Chain
from sparsona.training.config import TrainConfig
from sparsona.training.job import WeightTransform
from sparsona.training.slim import SlimNet, plan
from sparsona.training.step import GradientSpans
from sparsona.training.vector import FlatModule, view_of


class SwitchNorm2d(nn.Module):
    """Instance, layer and batch norm at once, mixed by two learnt softmaxes, one for means and one for variances.

    Variances are those of the population. In evaluation the batch's are the running ones.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.9) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.mean_weight = nn.Parameter(torch.ones(3))
        self.var_weight = nn.Parameter(torch.ones(3))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised images."""
        mean_in = x.mean((2, 3))
        var_in = x.var((2, 3), unbiased=False)
        square = var_in + mean_in.square()
        mean_ln = mean_in.mean(1, keepdim=True)
        var_ln = square.mean(1, keepdim=True) - mean_ln.square()
        mean_bn, var_bn = self.running_mean, self.running_var
        if self.training:
            mean_bn = mean_in.mean(0)
            var_bn = square.mean(0) - mean_bn.square()
            with torch.no_grad():
                self.running_mean.lerp_(mean_bn, 1 - self.momentum)
                self.running_var.lerp_(var_bn, 1 - self.momentum)
        m, v = self.mean_weight.softmax(0), self.var_weight.softmax(0)
        mean = m[0] * mean_in + m[1] * mean_ln + m[2] * mean_bn
        scale = self.weight * (v[0] * var_in + v[1] * var_ln + v[2] * var_bn + self.eps).rsqrt()
        return x * scale[:, :, None, None] + (self.bias - mean * scale)[:, :, None, None]


@dataclass(frozen=True)
class Design:
    """The design of a gate: for samples of `shape`, with `blocks` outputs; the images are first averaged over `pool` by
    `pool` pixels; two `paths` give importance and scale apart. `start` is the mean logit that scales begin with.

    The paper's ablations: without `pre_norm` inputs are not normalised, without `sigmoid` the logits are the scales,
    and a gate for a `client` learns one constant per block.
    """

    shape: tuple[int, ...]
    blocks: int
    paths: Literal["one", "two"] = "two"
    pool: int = 1
    post_norm: bool = True
    start: float = 0.0
    pre_norm: bool = True
    sigmoid: bool = True
    of: Literal["batch", "client"] = "batch"

    @property
    def image(self) -> tuple[int, int, int]:
        """The samples as images: a row of features is one of one channel."""
        if len(self.shape) == 3:
            return self.shape[0], self.shape[1], self.shape[2]
        return 1, math.prod(self.shape), 1

    def initial(self, chance: Chance, client: str) -> Vector:
        """A client's first gate as a vector."""
        with chance.torch("gate", client=client):
            return FlatModule(Gate(self)).read("all")


class Gate(nn.Module):
    """SwitchNorm of the inputs, one linear map to the blocks' logits, batch norm, sigmoid, the mean over the batch."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.design = design
        first = design.start if design.sigmoid else 1 / (1 + math.exp(-design.start))
        if design.of == "client":
            self.scale_of = nn.Parameter(torch.full((design.blocks,), first))
            if design.paths == "two":
                self.importance_of = nn.Parameter(torch.zeros(design.blocks))
            return
        channels, height, width = design.image
        if design.pool > min(height, width):
            raise InputError(f"gate_pool={design.pool} is more than samples of shape {design.shape} have: lower it")
        features = channels * (height // design.pool) * (width // design.pool)
        self.pre_norm = SwitchNorm2d(channels) if design.pre_norm else nn.Identity()
        self.scale = nn.Linear(features, design.blocks)
        self.scale_norm = nn.BatchNorm1d(design.blocks) if design.post_norm else nn.Identity()
        if design.paths == "two":
            self.importance = nn.Linear(features, design.blocks)
            self.importance.load_state_dict(self.scale.state_dict())
            self.importance_norm = nn.BatchNorm1d(design.blocks) if design.post_norm else nn.Identity()
            self.importance_norm.load_state_dict(self.scale_norm.state_dict())
        last = self.scale_norm if isinstance(self.scale_norm, nn.BatchNorm1d) else self.scale
        nn.init.constant_(last.bias, first)
        if design.paths == "two" and not design.post_norm:
            nn.init.zeros_(self.importance.bias)

    def logits(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return per sample the logits of the blocks' importance and of their scale."""
        if self.design.of == "client":
            scale = self.scale_of[None]
            return (scale, scale) if self.design.paths == "one" else (self.importance_of[None], scale)
        if not inputs.is_floating_point():
            raise InputError("pfedgate's gate reads numbers, not tokens: use images or tables")
        x = self.pre_norm(inputs.reshape(len(inputs), *self.design.image))
        if self.design.pool > 1:
            x = F.avg_pool2d(x, self.design.pool)
        x = x.flatten(1)
        scale = self.scale_norm(self.scale(x))
        if self.design.paths == "one":
            return scale, scale
        return self.importance_norm(self.importance(x)), scale

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """G, the importance of each block, and M, its scale: means over the batch."""
        importance, scale = self.logits(inputs)
        if not self.design.sigmoid:
            return importance.mean(0), scale.mean(0)
        mean = scale.sigmoid().mean(0)
        return (mean, mean) if importance is scale else (importance.sigmoid().mean(0), mean)


class Gating(WeightTransform):
    """Trains a gate beside the weights. `used` marks the blocks that any batch has kept.

    Given the module's `chain`, a step runs in a smaller net, unless dropped blocks need gradients, too.
    """

    needs_pairs = True

    def __init__(
        self,
        design: Design,
        cut: Cut,
        budget: Budget,
        gate: Vector,
        config: TrainConfig,
        moments: Moments | None = None,
        ste: Literal["paper", "repo"] = "paper",
        logit_relu: bool = False,
        chain: Chain | None = None,
        device: str = "cpu",
    ) -> None:
        self.flat = _loaded(design, gate, device, training=True)
        self.own = (self.flat.weights, self.flat.gradient)
        self.config = config
        self.moments = moments
        self.cut = cut
        self.budget = budget
        self.ste = ste
        self.logit_relu = logit_relu
        self.chain = chain if ste == "repo" and budget.density < 1 else None
        self.used = np.zeros(len(cut), np.bool_)
        self._nets: dict[bytes, SlimNet] = {}
        self._places: dict[bytes, dict[int, slice]] = {}
        self._masks: dict[bytes, Mask] = {}
        self.overwrites = self.chain is None
        maps = [m for m in self.flat.module.modules() if isinstance(m, nn.Linear)]
        self.operations = sum(2 * m.weight.numel() + m.out_features for m in maps)

    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        self.flat.gradient.zero_()
        importance, scale = self.flat.module(inputs)
        self.kept, self.scale = gated(importance, scale, self.cut, self.budget, self.ste)
        self.used |= self.kept
        net = self._net(flat)
        with torch.no_grad():
            target = flat.weights[: self.cut.bounds[-1]] if net is None else net.weights
            fill(target, weights, self.scale, self.cut, self._where(net))
        if net is None:
            outputs: torch.Tensor = flat.module(inputs)
        else:
            net.gradient.zero_()
            outputs = net(inputs, training=True)
        return F.relu(outputs) if self.logit_relu else outputs

    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans | None:
        """Compute dL/d(scale of block l) = <weights of l, dL/d(scaled weights)>, and backpropagate into the gate."""
        net = self._net(flat)
        source = flat.gradient if net is None else net.gradient
        where = self._where(net) if net else {block: self.cut.span(block) for block in range(len(self.cut))}
        zero, factors = weights.new_zeros(()), self.scale.detach()
        slopes = [zero] * len(self.cut)
        for block, place in where.items():
            span = self.cut.span(block)
            slopes[block] = torch.dot(weights[span], source[place])
            source[place].mul_(factors[block])
        torch.autograd.backward(self.scale, torch.stack(slopes))
        if self.kept.all():
            return None
        return [(self.cut.span(block), source[place]) for block, place in where.items() if self.kept[block]]

    def active(self) -> tuple[Mask | None, Mask | None]:
        """Return the kept blocks; with `ste` paper all blocks have a gradient."""
        key = self.kept.tobytes()
        if key not in self._masks:
            self._masks[key] = self.cut.mask(self.kept)
        return self._masks[key], None if self.ste == "paper" else self._masks[key]

    def _where(self, net: SlimNet | None) -> dict[int, slice]:
        key = self.kept.tobytes()
        if key not in self._places:
            self._places[key] = places(self.cut, self.kept, net)
        return self._places[key]

    def _net(self, flat: FlatModule) -> SlimNet | None:
        """The smaller net of the blocks that are kept now."""
        if self.chain is None:
            return None
        key = self.kept.tobytes()
        if key not in self._nets:
            rows = plan(self.chain, flat.layout, self.cut.mask(self.kept), training=True)
            self._nets[key] = SlimNet(self.chain, rows, str(flat.weights.device))
        return self._nets[key]


def places(cut: Cut, kept: Mask, net: SlimNet | None) -> dict[int, slice]:
    """Return the places of the kept blocks in the buffer of the smaller or whole net."""
    blocks = [int(b) for b in np.flatnonzero(kept)]
    if net is None:
        return {b: cut.span(b) for b in blocks}
    starts = {b: net.offset(cut.bounds[b]) for b in blocks}
    return {b: slice(at, at + int(cut.sizes[b])) for b, at in starts.items()}


def fill(target: torch.Tensor, weights: torch.Tensor, scale: torch.Tensor, cut: Cut, where: dict[int, slice]) -> None:
    """Write the kept blocks, scaled, to their places, and zeros elsewhere."""
    target.zero_()
    for block, place in where.items():
        torch.mul(weights[cut.span(block)], scale[block], out=target[place])


def gated(
    importance: torch.Tensor, scale: torch.Tensor, cut: Cut, budget: Budget, ste: Literal["paper", "repo"]
) -> tuple[Mask, torch.Tensor]:
    """I* and M' = M * I_ST: the scale of every block, zero where it is dropped.

    Straight through: I_ST = I* - stop(G) + G on all blocks (`paper`), or on the kept ones only (`repo`).
    """
    if budget.density >= 1:
        return np.ones(len(cut), np.bool_), scale
    importance = importance.clamp(min=budget.least)
    kept = budget.choose(cut, importance.detach().cpu().numpy())
    chosen = torch.from_numpy(kept).to(scale.device, scale.dtype)
    through = importance - importance.detach()
    return kept, scale * (chosen + through if ste == "paper" else chosen * (1 + through))


@dataclass(frozen=True)
class Gated:
    """A client's model: the shared weights and its gate, which makes of every `batch` samples that come together the
    sparse weights for them. With `batch` 0 the weights are `frozen`, those for the client's own training samples.
    Where the module is a `chain`, a really smaller net computes the outputs."""

    weights: Vector
    gate: Vector
    frozen: Vector
    design: Design
    cut: Cut
    budget: Budget
    batch: int = 128
    logit_relu: bool = False
    layout: Layout | None = None
    chain: Chain | None = None

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch, under the blocks that the gate chooses for it."""
        if not self.batch:
            outputs = self._run(forward, inputs, self.frozen)
        else:
            gate = ready(self.design, self.gate, str(inputs.device))
            parts = torch.split(inputs, self.batch)
            scales = (block_scales(gate, part, self.cut, self.budget) for part in parts)
            outputs = torch.cat([self._run(forward, part, each) for part, each in zip(parts, scales, strict=True)])
        return F.relu(outputs) if self.logit_relu else outputs

    def _run(
        self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor, scales: Vector
    ) -> torch.Tensor:
        kept = scales != 0
        if self.chain is None or self.layout is None or kept.all():
            return forward(self.sparse(scales), inputs)
        net = SlimNet(self.chain, plan(self.chain, self.layout, self.cut.mask(kept)), str(inputs.device))
        weights, scale = (view_of(a).to(inputs.device) for a in (self.weights, scales))
        with torch.no_grad():
            fill(net.weights, weights, scale, self.cut, places(self.cut, kept, net))
            return net(inputs)

    def sparse(self, scales: Vector) -> Vector:
        """The weights with every block scaled."""
        out = self.weights.copy()
        out[: self.cut.bounds[-1]] *= np.repeat(scales, self.cut.sizes)
        return out

    def vector(self) -> Vector:
        """Return the weights that represent the model: those for the client's own training samples."""
        return self.sparse(self.frozen)

    def signature(self) -> Vector:
        """The scales that the gate gives to the blocks."""
        return self.frozen


def ready(design: Design, gate: Vector, device: str = "cpu") -> nn.Module:
    """Return the gate with these weights, until the next call."""
    return _loaded(design, gate, device, training=False).module


@lru_cache(maxsize=8)
def _shared(design: Design, device: str, training: bool) -> FlatModule:
    flat = FlatModule(Gate(design), device)
    flat.module.train(training)
    return flat


def _loaded(design: Design, gate: Vector, device: str, training: bool) -> FlatModule:
    """Return one module for all clients, with these weights, until the next call.

    To build one takes longer than several steps of a small gate.
    """
    flat = _shared(design, device, training)
    flat.load(gate, "all")
    return flat


def block_scales(gate: nn.Module, inputs: torch.Tensor, cut: Cut, budget: Budget) -> Vector:
    """M' for a batch."""
    with torch.no_grad():
        importance, scale = gate(inputs)
        out: Vector = gated(importance, scale, cut, budget, "repo")[1].cpu().numpy()
    return out


@lru_cache(maxsize=8)
def cut_of(layout: Layout, blocks: int, split: Literal["equal", "paper", "channel"], least: float) -> Cut:
    """The model's blocks: the authors' code cuts equal ones, the paper a first one of the share `least`; `channel` cuts
    between output channels only."""
    return Cut.of(layout, blocks, least if split == "paper" else None, by_channel=split == "channel")
