"""A model by its spec: the net that ``mlp:200`` names, for samples of a shape."""

from __future__ import annotations

from torch import nn

from sparsona.errors import InputError
from sparsona.models import MODELS
from sparsona.registry import bind, split_spec

TEXT = "text-embedding"


def build_model(spec: str, shape: tuple[int, ...], outputs: int, vocabulary: int = 0) -> nn.Module:
    """The net, with weights from torch's generator. `vocabulary` is that of tokens, 0 where there are none.

    >>> build_model("logistic", (4,), 2).fc1
    Linear(in_features=4, out_features=2, bias=True)
    """
    name = split_spec(spec)[0]
    builder = MODELS.get(name)
    if vocabulary and name != TEXT:
        raise InputError(f"model {spec!r} does not read text: choose --model {TEXT}")
    if name == TEXT and not vocabulary:
        raise InputError(f"model {spec!r} reads words: declare them with --inputs tokens, or choose --model mlp")
    options = bind("model", spec, builder, skip=2)
    if vocabulary:
        options.setdefault("vocabulary", vocabulary)
    return builder(shape, outputs, **options)
