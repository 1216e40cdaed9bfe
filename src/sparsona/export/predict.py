"""Models rebuilt from their files, without the run or its data, and their predictions from raw rows."""

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import nn

from sparsona.base import checked_base, copied
from sparsona.chance import Chance
from sparsona.data._frames import from_frame, is_frame
from sparsona.data.dataset import Array, Dataset
from sparsona.data.fields import unpacking, without_unpacking
from sparsona.data.folder import read_table
from sparsona.data.schema.raw import encode_raw
from sparsona.data.schema.schema import Schema
from sparsona.errors import InputError
from sparsona.experts import models
from sparsona.export.files import WHOLE, ModelCard, ModelFile, holds_model, model_bytes, read_model, whole_bytes
from sparsona.files import json_of, read_outside, write_named
from sparsona.layout import Layout
from sparsona.message import Vector
from sparsona.method import ClientId, Model, Predictor
from sparsona.methods import METHODS
from sparsona.models._build import build_model
from sparsona.ops import mixture
from sparsona.registry import GIVEN, suggest
from sparsona.runs.state import unpack
from sparsona.terminal import Screen
from sparsona.training.objective import Objective, classification, multilabel, probabilities, regression
from sparsona.training.runner import EVAL_BATCH, ModelRunner


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
    schema, chance = card.schema, Chance(seed)
    if given is not None:
        net = copied(given)
    elif card.model == GIVEN:
        raise InputError(
            f"the model of {card.client} was given in Python and has no name: "
            "give it again with sparsona.load(run, model=...)"
        )
    else:
        with chance.torch("initial weights"):
            net = build_model(card.model, schema.input_shape, card.outputs, schema.vocabulary)
    found = part.of(net, chance)
    checked_base(card.trained.base, found)
    return unpacking(found, schema.fields)


def runner_of(card: ModelCard, module: nn.Module) -> ModelRunner:
    """Return a runner of the module, for inputs encoded by the card's schema."""
    schema = card.schema
    bytes_ = schema.fields or (schema.inputs == "images" and schema.scaling != "own")
    kind = np.uint8 if bytes_ else np.int32 if schema.inputs == "tokens" else np.float32
    (mean, std), classes = schema.batch_scaling, len(schema.classes)
    targets = np.zeros(1, np.int64) if classes else np.zeros((1, len(schema.targets)), np.float32)
    inputs = np.zeros((1, *schema.input_shape), kind)
    sample = Dataset("", inputs, targets, classes, mean=mean, std=std, fields=schema.fields)
    return ModelRunner(module, sample, objective_of(schema), Chance(0))


@dataclass(frozen=True)
class PersonalModel:
    """One client's own model, with preprocessing and names of classes.

    Rows may be a DataFrame, a mapping of columns (of single values: one row), or an array with the trained columns.
    """

    card: ModelCard
    model: Model
    runner: ModelRunner = field(repr=False)
    buffers: Vector = field(default_factory=lambda: np.zeros(0, np.float32), repr=False)
    """The float buffers of the client's net (BatchNorm's statistics), if any."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.card, self.model, copied(self.runner.flat.module), self.buffers)

    @property
    def client(self) -> ClientId:
        """Return the client's name."""
        return self.card.client

    def outputs(self, rows: Any, where: str = "the rows") -> torch.Tensor:
        """Return the model's raw outputs."""
        self.runner.buffers = self.buffers
        given = from_frame(rows, "", where) if is_frame(rows) else rows
        inputs = torch.from_numpy(np.ascontiguousarray(encode_raw(self.card.schema, given, where)))
        parts = [self.runner.outputs(self.model, self.runner.prepare(p)) for p in torch.split(inputs, EVAL_BATCH)]
        return torch.cat(parts)

    def predict(self, rows: Any, where: str = "the rows") -> Array:
        """Predict names of classes, or numbers in the target's units."""
        outputs = self.outputs(rows, where)
        found: Array = self.runner.objective.predict(outputs).cpu().numpy()
        if self.card.threshold is not None:
            found = self.card.predicted(probabilities(outputs, "classification"), found)
        return self.card.schema.speak(found)

    def probabilities(self, rows: Any, where: str = "the rows") -> Array:
        """Return the probability of each class, or label, in the schema's order."""
        schema = self.card.schema
        if schema.task == "regression":
            raise InputError(f"the model of {self.card.client} predicts numbers: use predict")
        found = probabilities(self.outputs(rows, where), schema.task)
        return found[:, : len(schema.classes)] if schema.classes else found

    def tensors(self) -> dict[str, Array]:
        """Return weights and float buffers by name, for a model of one vector."""
        if not isinstance(self.model, np.ndarray):
            raise InputError(f"the model of {self.client} is a {type(self.model).__name__}, not one set of weights")
        return {**self.runner.layout.named(self.model), **self.runner.flat.buffer_layout.named(self.buffers)}

    def module(self) -> nn.Module:
        """Return a torch module with the client's weights, which shares the memory of the base."""
        self.tensors()
        self.runner.flat.load(self.model)  # type: ignore[arg-type]  # a vector: `tensors` has checked it
        self.runner.buffers = self.buffers
        return without_unpacking(copied(self.runner.flat.module)).eval()

    def save(self, path: Path | str, whole: bool = False) -> None:
        """Write the model to a .safetensors file; if `whole`, with its base and under all names of its weights."""
        if whole:
            data = whole_bytes(self.module(), self.tensors(), self.card)
        else:
            buffers = self.runner.flat.buffer_layout.named(self.buffers)
            data = model_bytes(self.model, self.runner.layout, self.card, buffers)
        write_named(Path(path), data, "a model", holds_model)


def _rebuilt(card: ModelCard, model: Model, module: nn.Module, buffers: Vector) -> PersonalModel:
    """Restore a model from its pickle, with a new runner, because a runner's views cannot be pickled."""
    return PersonalModel(card, model, runner_of(card, module), buffers)


def load_model(path: Path, module: nn.Module | None = None, base: str = "") -> PersonalModel:
    """Load the model in a .safetensors or .npz file.

    `module` is its net if the net has no name, `base` the file of its frozen weights, if any."""
    file = read_model(path)
    if "chain" in file.notes:
        raise InputError(f"{path} is a small net: read it with sparsona.export.slim.load_slim")
    base = str(path) if WHOLE in file.notes else base
    runner = runner_of(file.card, module_of(file.card, module, base))
    return model_in(file, path, runner)


def model_in(file: ModelFile, path: Path, runner: ModelRunner) -> PersonalModel:
    """Return the model of a parsed file, for a runner of its net."""
    parameters, buffers = runner.layout, runner.flat.buffer_layout
    expected = {tensor.name for layout in (parameters, buffers) for tensor in layout.tensors}
    if "tree" in file.notes:
        model: Model = predictor_in(file, path)
        _refuse_others({tensor.name for tensor in buffers.tensors} - set(file.tensors), file, path)
    elif ("0.bias" in file.tensors and "0.bias" not in expected) or "0.roots" in file.tensors:
        raise InputError(f"{path} is for programs without this package: give the model as .safetensors")
    else:
        _refuse_others(expected ^ set(file.tensors), file, path)
        model = _vector(file, parameters, path)
    return PersonalModel(file.card, model, runner, _vector(file, buffers, path))


def predictor_in(file: ModelFile, path: Path) -> Predictor:
    """Return a model of several parts from a parsed file, without its net."""
    found: Predictor = unpack(read_outside(path), *_state_kinds(file))
    return found


def _refuse_others(names: set[str], file: ModelFile, path: Path) -> None:
    if names:
        raise InputError(f"{path} does not fit the model {file.card.model}: {min(names)!r} is only in one of them")


def _vector(file: ModelFile, layout: Layout, path: Path) -> Vector:
    """Concatenate the tensors of this layout; refuse other shapes and NaN."""
    for tensor in layout.tensors:
        found = file.tensors[tensor.name]
        if tuple(found.shape) != tuple(tensor.shape):
            raise InputError(f"{path}: {tensor.name!r} has shape {found.shape}, the model needs {tuple(tensor.shape)}")
        if found.dtype.kind not in "fiu" or not np.isfinite(found).all():
            raise InputError(f"{path}: {tensor.name!r} holds a value that is not a finite number: export it again")
    parts = [file.tensors[tensor.name].reshape(-1) for tensor in layout.tensors]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)


SHARED = mixture, models
"""Modules with classes of models of several parts, which every method may use."""


def _state_kinds(file: ModelFile) -> list[type]:
    """Return the classes of a model of several parts, and of the models that it mixes.

    They are in the method's package or its helpers, or among the shared ones.
    """
    package = METHODS.get(file.card.method).__module__
    ours = [name for name in sys.modules if name.startswith((package, "sparsona.methods."))]
    places = [sys.modules[name] for name in sorted(ours, key=lambda name: not name.startswith(package))]
    found: list[type] = []
    try:
        names = list(_classes(json_of(file.notes["tree"])))
    except (ValueError, RecursionError) as error:
        raise InputError(f"the model does not say what it is ({error}): export it again") from None
    for name in names:
        kinds = (getattr(place, name, None) for place in (*places, *SHARED))
        kind = next((kind for kind in kinds if isinstance(kind, type) and hasattr(kind, "predict")), None)
        if kind is None and not found:
            raise InputError(f"the model is a {name}, which method {file.card.method!r} does not know")
        found += [] if kind is None else [kind]  # what is no model is named in the annotations of one
    return found


def _classes(tree: Any) -> Iterator[str]:
    """Yield the names of the classes in a packed state, the outermost first."""
    if isinstance(tree, dict) and "class" in tree:
        yield str(tree["class"])
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for one in inner:
        yield from _classes(one)


def write_predictions(model: Path, rows: Path, to: Path, id: str = "", exact: bool = False, base: str = "") -> int:
    """Predict the rows of a file into a csv file, written atomically at the end; return their number.

    Only an older file of predictions is replaced.
    """
    for what, given in (("the model", model), ("the rows", rows)):
        if to.exists() and given.exists() and to.samefile(given):
            raise InputError(f"--out {to} is the file of {what}: give another path")
    text = io.StringIO()
    count = predict_file(model, rows, text, id, exact, base)
    known = (b"prediction,", b"prediction\n", text.getvalue().encode().partition(b"\n")[0] + b"\n")
    write_named(to, text.getvalue(), "a file of predictions", lambda there: there.startswith(known))
    return count


def predict_file(
    model: Path, rows: Path, out: IO[str] | Screen, id: str = "", exact: bool = False, base: str = ""
) -> int:
    """Write a csv of predictions, one line per row of a csv, parquet or npz file; return their number.

    The rows' column `id` comes first, unchanged. Probabilities have six digits, or all if `exact`.
    """
    predictor = load_model(model, base=base)
    table = read_table(rows, "")
    schema = predictor.card.schema
    found = predictor.predict(table, str(rows))
    writer = csv.writer(out, lineterminator="\n")
    names: list[list[str]] = [[]] * len(found)
    if id:
        raw = table.read(schema.format)
        if id not in raw.columns:
            raise InputError(f"{rows} has no column {id!r}{suggest(id, raw.columns)}")
        cells = enumerate(raw.columns[id].tolist())
        names = [[raw.cell(row, id) if id in raw.written else str(value)] for row, value in cells]
    if exact and schema.task == "regression":
        raise InputError("--probabilities are those of classes and labels: this model predicts numbers")
    several = schema.targets if len(schema.targets) > 1 else ["prediction"]
    head, values = [*([id] if id else []), *several], found.reshape(len(found), len(several)).tolist()
    shares: list[list[float]] = [[]] * len(found)
    if schema.task != "regression":
        head += [f"p({name})" for name in schema.classes or schema.targets]
        shares = predictor.probabilities(table, str(rows)).tolist()
    writer.writerow(head)
    for name, row, share in zip(names, values, shares, strict=True):
        writer.writerow([*name, *row, *(repr(p) if exact else f"{p:.6f}" for p in share)])
    return len(found)
