"""A model that can predict, from its card and weights alone: neither the run nor its data are needed."""

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
    """The task of a schema as a loss, a prediction and a metric."""
    if schema.task == "classification":
        return classification()
    return multilabel() if schema.task == "multilabel" else regression(schema.center, schema.spread)


def module_of(card: ModelCard, given: nn.Module | None = None, base: str = "", seed: int = 0) -> nn.Module:
    """The net of the card with its base; what is trained means nothing yet.

    `given` is the net where it has no name. Its base, if it has one, is its own, or that of the file `base`, or what
    the `seed` of the experiment makes.
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
    """The module ready to predict from inputs that the card's schema has encoded."""
    return ModelRunner(module, _one_sample(card.schema), objective_of(card.schema), Chance(0))


def _one_sample(schema: Schema) -> Dataset:
    """A data set of nothing: a runner wants one to know how inputs look and are scaled."""
    kind = {"images": np.uint8 if schema.scaling != "own" else np.float32, "tokens": np.int32}.get(
        schema.inputs, np.float32
    )
    mean, std = schema.batch_scaling
    classes = len(schema.classes)
    targets = np.zeros(1, np.int64) if classes else np.zeros((1, len(schema.targets)), np.float32)
    kind = np.uint8 if schema.fields else kind
    inputs = np.zeros((1, *schema.input_shape), kind)
    return Dataset("", inputs, targets, classes, mean=mean, std=std, fields=schema.fields)
