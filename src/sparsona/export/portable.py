"""A model as arrays and a description, for programs without this package; and its trees as LightGBM's text."""

import json
from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.experts.arrays import Constant, LinearModel
from sparsona.experts.forest import Trees
from sparsona.export.card import KEY
from sparsona.export.predict import PersonalModel
from sparsona.method import Model
from sparsona.ops.mixture import Mixture


def experts_of(model: Model) -> tuple[tuple[float, Model], ...]:
    """Return the models of a mixture with their shares; a single model has share 1."""
    if not isinstance(model, Mixture):
        return ((1.0, model),)
    return tuple((float(share), one) for share, one in zip(model.mixture, model.models, strict=True))


def weights_of(model: LinearModel | Constant, inputs: int) -> tuple[Array, Array]:
    """Return weights and biases; a constant has weights of 0."""
    if isinstance(model, LinearModel):
        return model.weight, model.bias
    return np.zeros((len(model.outputs), inputs), np.float32), model.outputs


def portable(model: PersonalModel) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """Return the arrays of every expert by name, and their descriptions: docs/models.md explains both."""
    arrays: dict[str, Array] = {}
    experts: list[dict[str, Any]] = []
    inputs = int(np.prod(model.card.schema.input_shape))
    for number, (share, one) in enumerate(experts_of(model.model)):
        name = f"{number}."
        entry: dict[str, Any] = {"share": share, "name": name}
        if isinstance(one, np.ndarray) and model.card.chain:
            kind, found = "net", dict(model.runner.layout.named(one))
        elif isinstance(one, LinearModel | Constant):
            weight, bias = weights_of(one, inputs)
            kind, found = "linear", {"weight": weight, "bias": bias}
        elif isinstance(one, Trees):
            forest = one.joined()
            names = ("start", "roots", "outputs", "feature", "threshold", "left", "right", "value")
            kind, found = "trees", {key: getattr(forest, key) for key in names}
            entry["rows"] = one.rows
        else:
            raise InputError(f"the model of {model.client} is not one set of weights: export it as .safetensors")
        arrays |= {f"{name}{key}": value for key, value in found.items()}
        experts.append({"kind": kind, **entry})
    return arrays, experts


def lightgbm_bytes(model: PersonalModel) -> bytes:
    """Return the trees of a model as a LightGBM file; the card describes its inputs."""
    found = [one for _, one in experts_of(model.model) if isinstance(one, Trees)]
    texts = [text for one in found for text in one.forests if text]
    if len(texts) != 1:
        problem = f"{len(texts)} forests" if texts else "no trees"
        raise InputError(f"the model of {model.client} has {problem}, and a .txt file holds one: export it as .onnx")
    return f"{texts[0]}\n{KEY}={json.dumps(json.loads(model.card.text()))}\n".encode()
