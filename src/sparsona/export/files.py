"""Model files: weights by name and the model's card, as safetensors or npz."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.export.card import KEY, ModelCard, card_of
from sparsona.layout import Layout
from sparsona.method import Model
from sparsona.runs.state import pack


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file. `notes` are what a safetensors file holds besides the card."""

    card: ModelCard
    tensors: Mapping[str, Array]
    notes: Mapping[str, str]


def safetensors_bytes(tensors: Mapping[str, Array], card: ModelCard, notes: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file: the same content gives the same bytes."""
    made = bytes(save_tensors(dict(tensors), metadata={**(notes or {}), KEY: _text(card, tensors)}))
    return _in_order(made)


def _in_order(file: bytes) -> bytes:
    """The file with its metadata sorted: the library writes several entries in another order each time."""
    start = 8 + int.from_bytes(file[:8], "little")
    head = json.loads(file[8:start])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + file[start:]


def model_bytes(model: Model, layout: Layout, card: ModelCard, buffers: Mapping[str, Array] | None = None) -> bytes:
    """The file of a personal model: its tensors by name, or the declared state of its predictor; and its net's float
    buffers (BatchNorm's statistics) by name."""
    if isinstance(model, np.ndarray):
        return safetensors_bytes({**layout.named(model), **(buffers or {})}, card)
    packed = pack(model)
    return safetensors_bytes({**load_tensors(packed), **(buffers or {})}, card, _notes(packed))


def npz_bytes(tensors: Mapping[str, Array], card: ModelCard, experts: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """An npz file: the weights, and the card as a text. `experts` says what the arrays are of a model of several."""
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **{**tensors, KEY: np.array(_text(card, tensors, experts))})
    return out.getvalue()


def read_model(path: Path) -> ModelFile:
    """The model in a file that ends in .safetensors or .npz."""
    if path.suffix in (".onnx", ".txt"):
        runs = "onnxruntime" if path.suffix == ".onnx" else "lightgbm"
        raise InputError(f"cannot read {path}: give the model as .safetensors or .npz, or run it with {runs}")
    if path.suffix not in (".safetensors", ".npz"):
        raise InputError(f"cannot read {path}: give a model file, which ends in .safetensors or .npz")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return model_of(data, path.suffix, str(path))


def model_of(data: bytes, ending: str, path: str) -> ModelFile:
    """The model in the bytes of a file that ends in .safetensors or .npz; `path` names it in an error."""
    if not data:
        raise InputError(f"{path} is empty: write it again with sparsona export")
    try:
        if ending == ".safetensors":
            notes = _notes(data)
            tensors: dict[str, Array] = load_tensors(data)
        elif not zipfile.is_zipfile(io.BytesIO(data)):
            raise zipfile.BadZipFile
        else:
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                tensors = {name: stored[name] for name in stored.files}
            notes = {KEY: str(tensors.pop(KEY))} if KEY in tensors else {}
    except (SafetensorError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        kind = f"it is no whole {ending[1:]} file"
        raise InputError(f"{path} is damaged, or no model ({kind}): write it again with sparsona export") from None
    if KEY not in notes:
        raise InputError(f"{path} says nothing about its model: write it with sparsona export")
    return ModelFile(card_of(notes[KEY], path), tensors, {k: v for k, v in notes.items() if k != KEY})


def holds_model(data: bytes) -> bool:
    """Whether a file is a model that sparsona export wrote, in any of its formats."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            return f"{KEY}.npy" in file.namelist()
    try:
        return KEY in _notes(data)
    except (ValueError, AttributeError):
        return ONNX_KEY in data or f"\n{KEY}={{".encode() in data


ONNX_KEY = b"\n\x08" + KEY.encode() + b"\x12"
"""How the name of the card begins in an ONNX file, whose entries are protocol buffers: field 1, 8 bytes; field 2."""


def _notes(data: bytes) -> dict[str, str]:
    """The metadata of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    notes: dict[str, str] = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    return notes


def _text(card: ModelCard, tensors: Mapping[str, Array], experts: Sequence[Mapping[str, Any]] = ()) -> str:
    return card.text({name: tuple(tensors[name].shape) for name in sorted(tensors)}, experts)
