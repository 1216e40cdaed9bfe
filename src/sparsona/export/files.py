"""Model files: weights by name and the model's card, a JSON of which docs/models.md describes every key."""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from safetensors.torch import save as save_state
from torch import nn

from sparsona.base import is_file
from sparsona.data.dataset import Array
from sparsona.data.schema.schema import Category, Number, Schema, told_schema
from sparsona.errors import InputError, WireError, printable
from sparsona.files import checked_npz, json_of, read_outside
from sparsona.layout import Layout
from sparsona.method import Model
from sparsona.runs.state import pack
from sparsona.training.adapters import ALL, TrainedPart
from sparsona.training.chain import chain_or_none
from sparsona.version import __version__

KEY = "sparsona"
"""The name of the card in a file of any format."""
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

    def text(self, tensors: Mapping[str, Array] | None = None, experts: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the card as JSON, with names and shapes of the weights, and the `experts` of a mixture."""
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
            "tensors": {name: array.shape for name, array in sorted((tensors or {}).items())},
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
        if is_file(base := str(part.get("base", ""))):  # a file from outside must not name files to read
            raise ValueError("the base is named by no hash")
        trained = TrainedPart(tuple(map(str, part.get("trainable", ()))), str(part.get("lora", "")), base)
        return replace(card, threshold=threshold, positive=positive, trained=trained)
    except (ValueError, KeyError, TypeError, RecursionError, WireError) as error:
        why = printable(error if isinstance(error, WireError) else repr(error), 200)
        raise InputError(f"{where} holds no card of its model that can be read ({why}): export it again") from None


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


HASH = "sha256"
"""The name of the hash of a file's tensors and notes."""
WHOLE = "whole"
"""The note that marks a file with a model's base."""
BROKEN = (
    ValueError, KeyError, TypeError, EOFError, AttributeError, OverflowError, NotImplementedError, RuntimeError,
    OSError, zlib.error,
)  # fmt: skip
"""The errors that readers of damaged files raise."""


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file; `notes` are the metadata of a safetensors file besides the card."""

    card: ModelCard
    tensors: Mapping[str, Array]
    notes: Mapping[str, str]


def safetensors_bytes(tensors: Mapping[str, Array], card: ModelCard, notes: Mapping[str, str] | None = None) -> bytes:
    """Return a safetensors file; the same content gives the same bytes."""
    held = {**(notes or {}), KEY: card.text(tensors)}
    return _in_order(bytes(save_tensors(dict(tensors), metadata=held | {HASH: _hash(tensors, held)})))


def _in_order(file: bytes) -> bytes:
    """Return the file with sorted metadata, because the library writes entries in varying order."""
    start = 8 + int.from_bytes(file[:8], "little")
    head = json.loads(file[8:start])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + file[start:]


def model_bytes(model: Model, layout: Layout, card: ModelCard, buffers: Mapping[str, Array] | None = None) -> bytes:
    """Return the file of a personal model: its tensors, or its predictor's state, and its float buffers, by name."""
    if isinstance(model, np.ndarray):
        return safetensors_bytes({**layout.named(model), **(buffers or {})}, card)
    packed = pack(model)
    return safetensors_bytes({**load_tensors(packed), **(buffers or {})}, card, notes_of(packed))


def whole_bytes(module: nn.Module, trained: Mapping[str, Array], card: ModelCard) -> bytes:
    """Return a safetensors file of a net's whole state, base included, with the card of the `trained` part.

    The file's hash covers the trained part; the card has the hash of the base.
    """
    state = {name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()}
    held = {KEY: card.text(trained), WHOLE: "yes"}
    return _in_order(save_state(state, metadata=held | {HASH: _hash(trained, held)}))


def _trained(data: bytes) -> dict[str, Array]:
    """Return the tensors of the trained part, without a base in the file."""
    notes = notes_of(data)
    if WHOLE not in notes:
        return dict(load_tensors(data))
    named = json_of(notes[KEY])["tensors"]
    parts = deserialize(data)  # type: ignore[no-untyped-call]
    found = {name: of for name, of in parts if name in named and of["dtype"] == "F32"}
    return {name: np.frombuffer(of["data"], np.float32).reshape(of["shape"]) for name, of in found.items()}


def npz_bytes(tensors: Mapping[str, Array], card: ModelCard, experts: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """Return an npz file of the weights and the card; `experts` describes the arrays of a mixture."""
    out = io.BytesIO()
    held = {KEY: card.text(tensors, experts)}
    texts = {name: np.array(text) for name, text in (held | {HASH: _hash(tensors, held)}).items()}
    np.savez(out, allow_pickle=False, **{**tensors, **texts})
    return out.getvalue()


def read_model(path: Path) -> ModelFile:
    """Read the model in a .safetensors or .npz file."""
    if path.suffix in (".onnx", ".txt"):
        runs = "onnxruntime" if path.suffix == ".onnx" else "lightgbm"
        raise InputError(f"cannot read {path}: give the model as .safetensors or .npz, or run it with {runs}")
    if path.suffix not in (".safetensors", ".npz"):
        raise InputError(f"cannot read {path}: give a model file, which ends in .safetensors or .npz")
    return model_of(read_outside(path), path.suffix, str(path))


def model_of(data: bytes, ending: str, path: str) -> ModelFile:
    """Return the model in the bytes of a .safetensors or .npz file; errors name it by `path`."""
    if not data:
        raise InputError(f"{path} is empty: write it again with sparsona export")
    try:
        tensors: dict[str, Array]
        if ending == ".safetensors":
            notes = notes_of(data)
            tensors = _trained(data)
        elif not zipfile.is_zipfile(io.BytesIO(data)):
            raise zipfile.BadZipFile
        else:
            checked_npz(io.BytesIO(data), path)
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                tensors = {name: stored[name] for name in stored.files}
            notes = {key: str(tensors.pop(key)) for key in (KEY, HASH) if key in tensors}
        if any(not isinstance(note, str) for note in notes.values()):
            raise ValueError("a note is no text")
        told = notes.pop(HASH, None)
        changed = told is not None and told != _hash(tensors, notes)
    except (SafetensorError, zipfile.BadZipFile, *BROKEN):
        kind = f"it is no whole {ending[1:]} file"
        raise InputError(f"{path} is damaged, or no model ({kind}): write it again with sparsona export") from None
    if changed:
        raise InputError(f"{path} is damaged, it is not as it was written: write it again with sparsona export")
    if KEY not in notes:
        raise InputError(f"{path} says nothing about its model: write it with sparsona export")
    return ModelFile(card_of(notes[KEY], path), tensors, {k: v for k, v in notes.items() if k != KEY})


def holds_model(data: bytes) -> bool:
    """True for a model file of sparsona export, in any of its formats."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            return f"{KEY}.npy" in file.namelist()
    try:
        return KEY in notes_of(data)
    except (ValueError, AttributeError, TypeError):
        return ONNX_KEY in data or f"\n{KEY}={{".encode() in data


ONNX_KEY = b"\n\x08" + KEY.encode() + b"\x12"
"""The bytes before the card in an ONNX file, whose entries are protocol buffers: field 1, 8 bytes; field 2."""


def notes_of(data: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= len(data) - 8:
        raise ValueError("the header is longer than the file")
    notes: dict[str, str] = json_of(data[8 : 8 + size]).get("__metadata__") or {}
    return dict(notes)


def _hash(tensors: Mapping[str, Array], notes: Mapping[str, str]) -> str:
    found = hashlib.sha256(json.dumps(sorted(notes.items())).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        found.update(f"\0{name}\0{array.dtype.str}\0{tensors[name].shape}\0".encode())
        found.update(array.tobytes())
    return found.hexdigest()
