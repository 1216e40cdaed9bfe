"""Export a client's model from a run directory or from its owner's file, in the format of the file's name."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.experts.models import Constant, LinearModel, Trees
from sparsona.export.files import KEY, holds_model, npz_bytes, read_model
from sparsona.export.predict import PersonalModel, load_model
from sparsona.files import write_named
from sparsona.method import ClientId, Model
from sparsona.ops.mixture import Mixture
from sparsona.runs.directory import RunDirectory

FORMATS = ("safetensors", "npz", "onnx", "txt")


def export_model(run: Path, client: ClientId, to: Path, format: str | None = None, base: str = "") -> None:
    """Write a client's model with its card to `to`, in `format` or in the format of the name.

    `run` is a run directory, or the .safetensors file that a client of a network has.

    `base` is the file of the net's frozen weights; ONNX needs it, other formats hold the trained part.

    A name of another format than `format` is refused, because programs read the file by its name.
    """
    ending = to.suffix[1:]
    chosen = format or ending
    if chosen not in FORMATS:
        raise InputError(f"cannot write {to}: give --format, or a name that ends in .{', .'.join(FORMATS)}")
    if ending.lower() in FORMATS and ending.lower() != chosen:
        raise InputError(f"cannot write {to} as {chosen}: leave --format out, or give a name that ends in .{chosen}")
    file = run if run.is_file() else RunDirectory(run).need_model(client)
    if file == run and client not in ("", load_model(run).card.client):
        raise InputError(f"{run} is the model of {load_model(run).card.client}, not of {client}: leave --client out")
    data = file.read_bytes()
    if chosen == "npz":
        found = read_model(file)
        tensors, experts = portable(load_model(file)) if "tree" in found.notes else (found.tensors, [])
        data = npz_bytes(tensors, found.card, experts)
    if chosen == "txt":
        data = lightgbm_bytes(load_model(file))
    if chosen == "onnx":
        from sparsona.export.onnx import onnx_bytes  # its packages are an extra, and slow to import

        data = onnx_bytes(load_model(file, base=base))
    write_named(to, data, "a model", holds_model)


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
