"""Rebuild a model for predictions from its card and weights, without the run or its data."""

from dataclasses import replace

import numpy as np
from torch import nn

from sparsona.base import checked_base, copied
from sparsona.chance import Chance
from sparsona.data.dataset import Dataset
from sparsona.data.fields import unpacking
from sparsona.data.schema.schema import Schema
from sparsona.errors import InputError
from sparsona.export.card import ModelCard
from sparsona.models._build import build_model
from sparsona.registry import GIVEN
from sparsona.training.objective import Objective, classification, multilabel, regression
from sparsona.training.runner import ModelRunner


def objective_of(schema: Schema) -> Objective:
    """Return the objective of a schema's task."""
    if schema.task == "classification":
        return classification()
    return multilabel() if schema.task == "multilabel" else regression(schema.center, schema.spread)


def module_of(card: ModelCard, given: nn.Module | None = None, base: str = "", seed: int = 0) -> nn.Module:
    """Return the net of the card with its base; the trained weights are not set yet.

    `given` is a net without a name. The base is its own, or read from the file `base`, or made from the experiment's
    `seed`.
    """
    part = replace(card.trained, base=base or card.trained.base)
    found = part.of(_net(card, Chance(seed)) if given is None else copied(given), Chance(seed))
    checked_base(card.trained.base, found)
    return unpacking(found, card.schema.fields)


def _net(card: ModelCard, chance: Chance) -> nn.Module:
    if card.model == GIVEN:
        raise InputError(
            f"the model of {card.client} was given in Python and has no name: "
            "give it again with sparsona.load(run, model=...)"
        )
    schema = card.schema
    with chance.torch("initial weights"):
        return build_model(card.model, schema.input_shape, card.outputs, schema.vocabulary)


def runner_of(card: ModelCard, module: nn.Module) -> ModelRunner:
    """Return a runner of the module, for inputs encoded by the card's schema."""
    return ModelRunner(module, _one_sample(card.schema), objective_of(card.schema), Chance(0))


def _one_sample(schema: Schema) -> Dataset:
    """Return an empty data set, from which a runner reads shape and scaling of inputs."""
    kind = {"images": np.uint8 if schema.scaling != "own" else np.float32, "tokens": np.int32}.get(
        schema.inputs, np.float32
    )
    mean, std = schema.batch_scaling
    classes = len(schema.classes)
    targets = np.zeros(1, np.int64) if classes else np.zeros((1, len(schema.targets)), np.float32)
    kind = np.uint8 if schema.fields else kind
    inputs = np.zeros((1, *schema.input_shape), kind)
    return Dataset("", inputs, targets, classes, mean=mean, std=std, fields=schema.fields)
