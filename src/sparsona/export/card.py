"""The card of a model file, as JSON: docs/models.md describes every key."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from sparsona.base import is_file
from sparsona.data.dataset import Array
from sparsona.data.schema.schema import Category, Number, Schema
from sparsona.data.schema.told import told_schema
from sparsona.errors import InputError, WireError, printable
from sparsona.files import json_of
from sparsona.training.adapters import ALL, TrainedPart
from sparsona.training.chain import chain_or_none
from sparsona.version import __version__

KEY = "sparsona"
"""The name of the JSON in a file of any format."""

FORMAT = 2
"""2: the card has a threshold, which programs of format 1 do not know."""
MOST_OUTPUTS = 10**6


@dataclass(frozen=True)
class ModelCard:
    """Everything about a model besides its weights.

    `model` is the spec that builds the net for `input_shape` and `outputs`. `chain` has its layers in order, if it is a
    chain of layers.
    """

    client: str
    method: str
    data: str
    model: str
    outputs: int
    schema: Schema
    chain: tuple[Mapping[str, Any], ...] = ()
    threshold: float | None = None
    """The probability from which on class number `positive` is predicted; None: predict the likeliest class."""
    positive: int = 1
    trained: TrainedPart = ALL
    """The trained part of the net, and the hash of its base."""

    def predicted(self, probabilities: Array, likeliest: Array) -> Array:
        """Return the predicted class numbers."""
        if self.threshold is None:
            return likeliest
        found: Array = np.where(probabilities[:, self.positive] >= self.threshold, self.positive, 1 - self.positive)
        return found

    def text(
        self, tensors: Mapping[str, tuple[int, ...]] | None = None, experts: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """Return the card as JSON; `tensors` has names and shapes of the weights, `experts` those of a mixture."""
        tree = {
            "format": 1 if self.threshold is None else FORMAT,
            "sparsona": __version__,
            "client": self.client,
            "method": self.method,
            "data": self.data,
            "model": self.model,
            "outputs": self.outputs,
            "input_shape": self.schema.input_shape,
            "schema": self.schema.to_json(),
            "inputs": _inputs(self.schema),
            "missing": sorted(self.schema.format.words),
            "tensors": {} if tensors is None else tensors,
            "chain": self.chain,
            **({} if self.threshold is None else {"threshold": self.threshold, "positive": self.positive}),
            **({"experts": list(experts)} if experts else {}),
            **({} if self.trained == ALL else {"trained": asdict(self.trained)}),
        }
        return json.dumps(tree, ensure_ascii=False)


def card_of(text: str, where: str) -> ModelCard:
    """Parse a card from JSON."""
    try:
        tree = json_of(text)
        if tree["format"] > FORMAT:
            raise InputError(f"{where} is of format {tree['format']}, this program reads {FORMAT}: update sparsona")
        schema = told_schema(tree["schema"])
        keys = ("client", "method", "data", "model")
        if not all(isinstance(tree[key], str) for key in keys) or not isinstance(tree["chain"], list):
            raise TypeError("a name is no text, or the chain no list")
        if type(tree["outputs"]) is not int or not 1 <= tree["outputs"] <= MOST_OUTPUTS:
            raise ValueError("the number of outputs is not valid")
        named = {key: tree[key] for key in keys}
        threshold, positive = tree.get("threshold"), tree.get("positive", 1)
        if threshold is not None and not (0 <= float(threshold) <= 1 and positive in (0, 1)):
            raise ValueError("the threshold is not valid")
        card = ModelCard(**named, outputs=tree["outputs"], schema=schema, chain=tuple(tree["chain"]))
        part = tree.get("trained", {})
        trained = TrainedPart(tuple(map(str, part.get("trainable", ()))), str(part.get("lora", "")), _hash(part))
        return replace(card, threshold=threshold, positive=positive, trained=trained)
    except (ValueError, KeyError, TypeError, RecursionError, WireError) as error:
        why = printable(error if isinstance(error, WireError) else repr(error), 200)
        raise InputError(f"{where} holds no card of its model that can be read ({why}): export it again") from None


def _hash(part: Mapping[str, Any]) -> str:
    """Return the hash of the base; a path is refused, because a file from outside must not name files to read."""
    base = str(part.get("base", ""))
    if is_file(base):
        raise ValueError("the base is named by no hash")
    return base


def layers(module: nn.Module) -> tuple[Mapping[str, Any], ...]:
    """Return the net as a chain of layers, for programs without torch; empty for other nets."""
    chain = chain_or_none(module)
    return () if chain is None else tuple(asdict(step) for step in chain)


def _inputs(schema: Schema) -> list[dict[str, Any]]:
    """Return the source of each input in order: enough to prepare a row without this package."""
    found: list[dict[str, Any]] = []
    for feature in schema.features:
        if isinstance(feature, Number):
            found.append({"kind": "number", "column": feature.column, "mean": feature.mean, "std": feature.std})
            if feature.indicator:
                found.append({"kind": "missing", "column": feature.column})
        elif isinstance(feature, Category):
            values: list[Any] = [float(v) for v in feature.values] if feature.numeric else list(feature.values)
            found += [{"kind": "equals", "column": feature.column, "value": value} for value in values]
    return found
