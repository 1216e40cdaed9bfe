"""Export a client's model as a slim net, and load it as a plain torch module."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from sparsona.errors import InputError, printable
from sparsona.export.files import BROKEN, holds_model, notes_of, safetensors_bytes
from sparsona.export.predict import load_model
from sparsona.files import json_of, read_outside, write_named
from sparsona.method import SparsePredictor
from sparsona.runs.directory import RunDirectory
from sparsona.training.chain import Layer, chain_of
from sparsona.training.slim import SlimNet, plan, small_module


@dataclass(frozen=True)
class Exported:
    """The number of weights before and after."""

    before: int
    after: int


def export_slim(run: Path, client: str, to: Path) -> Exported:
    """Write the small net of a client of a finished run, without rows of zeros.

    A :class:`~sparsona.method.SparsePredictor` is represented by its sparse weights. The file holds the tensors by name
    and, as metadata, the chain of layers. :func:`load_slim` makes a module of it.
    """
    if to.suffix != ".safetensors":
        raise InputError(f"cannot write {to}: a small net goes to a file that ends in .safetensors")
    given = load_model(RunDirectory(run).need_model(client))
    model, layout, chain = given.model, given.runner.layout, chain_of(given.runner.flat.module)
    if not isinstance(model, np.ndarray | SparsePredictor):
        kind = type(model).__name__
        raise InputError(f"the model is a {kind}, not one set of weights: it cannot be exported as a small net")
    vector = model if isinstance(model, np.ndarray) else model.vector()
    net = SlimNet(chain, plan(chain, layout, vector != 0))
    net.load(vector)
    tensors = {name: tensor.contiguous().numpy() for name, tensor in net.tensors().items()}
    data = safetensors_bytes(
        tensors, given.card, {"client": client, "chain": json.dumps([asdict(layer) for layer in chain])}
    )
    write_named(to, data, "a model", holds_model)
    return Exported(layout.size, net.numbers())


def load_slim(path: Path) -> nn.Sequential:
    """Load the small net of :func:`export_slim`, which predicts from normalised inputs."""
    try:
        data = read_outside(path)
        tensors, notes = load(data), notes_of(data)
        if "chain" not in notes:
            raise InputError(f"{path} is not a small net: write it with sparsona export --slim")
        layers: list[dict[str, Any]] = json_of(notes["chain"])
        for layer in layers:
            layer.update({key: tuple(value) for key, value in layer.items() if isinstance(value, list)})
        return small_module([Layer(**layer) for layer in layers], tensors)
    except (SafetensorError, *BROKEN) as error:
        raise InputError(f"cannot read {path}: {printable(error, 200)}") from None
