"""A client's model as a slim net in a file, and that file as a plain torch module."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from sparsona.errors import InputError, RunError
from sparsona.export.card import KEY, ModelCard, card_of
from sparsona.export.files import holds_model
from sparsona.export.rebuild import module_of
from sparsona.files import write_named
from sparsona.layout import Layout
from sparsona.message import Vector
from sparsona.methods.pfedgate.gate import Gated
from sparsona.registry import suggest
from sparsona.runs.directory import RunDirectory
from sparsona.runs.state import unpack
from sparsona.training.chain import Chain, Layer, chain_of
from sparsona.training.slim import SlimNet, plan, small_module


@dataclass(frozen=True)
class Exported:
    """How many numbers the model had, and how many the small net has."""

    before: int
    after: int


def export_slim(run: Path, client: str, to: Path) -> Exported:
    """Write the small net of a client of a finished run, without the rows that have no weights.

    A pFedGate client's net is the one that its gate makes for its own training samples. The file holds the tensors by
    name and, as metadata, the chain of layers. :func:`load_slim` makes a module of it.
    """
    folder = RunDirectory(run)
    file = folder.model_file(client)
    if to.suffix != ".safetensors":
        raise InputError(f"cannot write {to}: a small net goes to a file that ends in .safetensors")
    if not file.exists():
        folder.summary()
        raise InputError(f"{run} has no client {client!r}{suggest(client, [p.stem for p in folder.models.glob('*')])}")
    try:
        with safe_open(file, framework="numpy") as tensors:
            notes = dict(tensors.metadata() or {})
            named = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise RunError(f"{file} is damaged: {error}") from None
    vector, layout, chain = (
        _gated(file, notes) if "tree" in notes else _plain(card_of(notes.get(KEY, ""), str(file)), named)
    )
    net = SlimNet(chain, plan(chain, layout, vector != 0))
    net.load(vector)
    notes = {**{k: v for k, v in notes.items() if k != "tree"}, "client": client, "chain": _text(chain)}
    data = save({name: tensor.contiguous() for name, tensor in net.tensors().items()}, metadata=notes)
    write_named(to, data, "a model", holds_model)
    return Exported(layout.size, net.numbers())


def load_slim(path: Path) -> nn.Sequential:
    """The small net of a file that :func:`export_slim` wrote, ready to predict from normalised inputs."""
    try:
        with safe_open(path, framework="numpy") as tensors:
            notes = tensors.metadata() or {}
        if "chain" not in notes:
            raise InputError(f"{path} is not a small net: write it with sparsona export --slim")
        layers = [_layer(given) for given in json.loads(notes["chain"])]
        return small_module(layers, load_file(path))
    except (SafetensorError, OSError) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _layer(given: dict[str, Any]) -> Layer:
    arguments: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    return Layer(**arguments)


def _text(chain: Chain) -> str:
    return json.dumps([dataclasses.asdict(layer) for layer in chain])


def _gated(file: Path, notes: dict[str, Any]) -> tuple[Vector, Layout, Chain]:
    kind = json.loads(notes["tree"]).get("class")
    if kind != Gated.__qualname__:
        raise InputError(f"the model is a {kind}, not one set of weights: it cannot be exported as a small net")
    model: Gated = unpack(file.read_bytes(), Gated)
    if model.layout is None or model.chain is None:
        raise InputError("the net is no chain of layers, so it cannot be made smaller: export it without --slim")
    return model.vector(), model.layout, model.chain


def _plain(card: ModelCard, named: dict[str, Any]) -> tuple[Vector, Layout, Chain]:
    module = module_of(card)
    layout, chain = Layout.of(module), chain_of(module)
    return np.concatenate([named[t.name].ravel() for t in layout.tensors]), layout, chain
