"""ONNX models that predict from raw rows: one input per column, the owner's class names as output.

A table's column is an input of its name, of shape (rows, 1): float (NaN: missing), or text (empty: missing) for textual
categories. Other samples are one input called `x`. A classifier returns `prediction` (class names, or whole numbers)
and `probabilities`; other models return `prediction`.
"""

import logging
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from sparsona.data.schema.schema import Category, Number, Schema
from sparsona.errors import InputError
from sparsona.experts.models import Constant, LinearModel, Trees
from sparsona.export.files import KEY, ModelCard
from sparsona.export.predict import PersonalModel
from sparsona.export.run import experts_of, weights_of

OPSET, IR = 18, 9
ROWS = "rows"
POOLS = {"max-pool": "MaxPool", "avg-pool": "AveragePool"}


@dataclass
class OnnxGraph:
    """Nodes, constants and inputs of a graph under construction."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, domain: str = "", name: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = name or f"sparsona.{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a constant and return its name."""
        name = f"sparsona.c{len(self.constants)}"
        array = np.asarray(values, dtype)
        held = array.astype(object) if array.dtype.kind == "U" else array
        self.constants.append(self.onnx.numpy_helper.from_array(held, name))
        return name

    def input(self, name: str, kind: str, shape: list[Any]) -> str:
        """Add an input and return its name."""
        self.inputs.append(self._typed(name, kind, shape))
        return name

    def output(self, name: str, kind: str, shape: list[Any]) -> None:
        """Declare an output."""
        self.outputs.append(self._typed(name, kind, shape))

    def _typed(self, name: str, kind: str, shape: list[Any]) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, getattr(self.onnx.TensorProto, kind), [ROWS, *shape])

    def cast(self, value: str, kind: str, name: str = "") -> str:
        """Add a change of type and return the name of its result."""
        return self.node("Cast", value, name=name, to=getattr(self.onnx.TensorProto, kind))


def onnx_bytes(model: PersonalModel) -> bytes:
    """Return the ONNX file of a model: one set of weights, an expert, or a mixture of these."""
    try:
        import onnx
    except ImportError:
        raise InputError("ONNX needs a package that is not here: pip install 'sparsona[onnx]'") from None
    graph = OnnxGraph(onnx)
    _answers(graph, model.card, _mixed(graph, model, _encoded(graph, model.card.schema)))
    whole = onnx.helper.make_graph(graph.nodes, "sparsona", graph.inputs, graph.outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in (("", OPSET), ("ai.onnx.ml", 3))]
    made = onnx.helper.make_model(whole, opset_imports=opsets, ir_version=IR, producer_name="sparsona")
    onnx.helper.set_model_props(made, {KEY: model.card.text()})
    onnx.checker.check_model(made)
    data: bytes = made.SerializeToString()
    return data


def _mixed(graph: OnnxGraph, model: PersonalModel, ready: str) -> str:
    """Add the nodes of a mixture; return its output."""
    parts, task = experts_of(model.model), model.card.schema.task
    if sum(isinstance(one, np.ndarray) for _, one in parts) > 1 and not model.card.chain:
        raise InputError(f"ONNX takes one net that is no chain of layers, {model.client} has several: use .safetensors")
    found = [(share, _expert(graph, replace(model, model=one), ready)) for share, one in parts]
    if len(found) == 1:
        return found[0][1]
    answer = {"classification": "Softmax", "multilabel": "Sigmoid"}.get(task)
    each = [
        graph.node("Mul", graph.node(answer, one) if answer else one, graph.constant(share, np.float32))
        for share, one in found
    ]
    return _back(graph, graph.node("Sum", *each), task)


def _back(graph: OnnxGraph, shares: str, task: str) -> str:
    """Convert mixed answers into log probabilities of classes or log odds of labels; numbers stay."""
    if task == "regression":
        return shares
    logs = graph.node("Log", shares)
    if task == "classification":
        return logs
    return graph.node("Sub", logs, graph.node("Log", graph.node("Sub", graph.constant(1.0, np.float32), shares)))


def _expert(graph: OnnxGraph, model: PersonalModel, ready: str) -> str:
    if isinstance(model.model, np.ndarray):
        return _chained(graph, model, ready) if model.card.chain else _traced(graph, model, ready)
    flat = graph.node("Flatten", ready, axis=1)
    if isinstance(model.model, LinearModel | Constant):
        inputs = int(np.prod(model.card.schema.input_shape))
        return graph.node("Gemm", flat, *map(graph.constant, weights_of(model.model, inputs)), transB=1)
    if isinstance(model.model, Trees):
        return _trees(graph, model.model, flat)
    raise InputError(f"the model of {model.client} is not one set of weights: export it as .safetensors")


def _trees(graph: OnnxGraph, model: Trees, flat: str) -> str:
    """Add trees as one operator. Inputs are float32, so each threshold is rounded down to float32."""
    forest = model.joined()
    nodes, trees = np.arange(len(forest.value)), np.arange(len(forest.roots))
    tree = np.repeat(trees, np.diff([*forest.roots, len(nodes)]))
    leaf = forest.left == nodes
    single = forest.threshold.astype(np.float32)
    below = np.where(single > forest.threshold, np.nextafter(single, np.float32(-np.inf)), single)
    place = nodes - forest.roots[tree]
    scores = graph.node(
        "TreeEnsembleRegressor",
        flat,
        domain="ai.onnx.ml",
        n_targets=len(forest.start),
        base_values=forest.start.tolist(),
        nodes_treeids=tree.tolist(),
        nodes_nodeids=place.tolist(),
        nodes_featureids=forest.feature.tolist(),
        nodes_modes=["LEAF" if end else "BRANCH_LEQ" for end in leaf],
        nodes_values=below.tolist(),
        nodes_truenodeids=np.where(leaf, 0, forest.left - forest.roots[tree]).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, forest.right - forest.roots[tree]).tolist(),
        target_treeids=tree[leaf].tolist(),
        target_nodeids=place[leaf].tolist(),
        target_ids=forest.outputs[tree[leaf]].tolist(),
        target_weights=forest.value[leaf].tolist(),
    )
    if model.kind == "regression":
        return scores
    classes = len(forest.start) if model.kind == "classification" else 2
    shares = graph.node("Softmax", scores, axis=1) if model.kind == "classification" else graph.node("Sigmoid", scores)
    counted = graph.node("Mul", shares, graph.constant(model.rows / (model.rows + 1), np.float32))
    smooth = graph.node("Add", counted, graph.constant(1 / classes / (model.rows + 1), np.float32))
    return _back(graph, smooth, model.kind)


def _chained(graph: OnnxGraph, model: PersonalModel, value: str) -> str:
    weights = model.tensors()
    for step in model.card.chain:
        kind, name = step["kind"], step["name"]
        held = [graph.constant(weights[f"{name}.{part}"]) for part in ("weight", "bias") if f"{name}.{part}" in weights]
        window, stride = list(step["window"]), list(step["stride"])
        if kind == "linear":
            value = graph.node("Gemm", value, *held, transB=1)
        elif kind == "conv":
            value = graph.node("Conv", value, *held, strides=stride, pads=[*step["padding"], *step["padding"]])
        elif kind in POOLS:
            value = graph.node(POOLS[kind], value, kernel_shape=window, strides=stride)
        elif kind == "mean":
            value = graph.node("Flatten", graph.node("GlobalAveragePool", value), axis=1)
        elif kind in ("relu", "flatten"):
            value = graph.node("Relu", value) if kind == "relu" else graph.node("Flatten", value, axis=1)
    return value


def _traced(graph: OnnxGraph, model: PersonalModel, value: str) -> str:
    """Add any other net, as torch's exporter writes it."""
    net = _net(graph.onnx, model)
    (entry,), (answer,) = net.graph.input, net.graph.output
    for node in net.graph.node:
        for k, name in enumerate(node.input):
            if name == entry.name:
                node.input[k] = value
    graph.nodes += net.graph.node
    graph.constants += net.graph.initializer
    return str(answer.name)


def _net(onnx: Any, model: PersonalModel) -> Any:
    """Return the net from encoded inputs to raw outputs, by torch's exporter."""
    assert isinstance(model.model, np.ndarray)
    runner = model.runner
    runner.flat.load(model.model)
    runner.buffers = model.buffers
    module = runner.flat.module.eval()
    kind = torch.int32 if model.card.schema.inputs == "tokens" else torch.float32
    sample = torch.zeros((2, *model.card.schema.input_shape), dtype=kind)
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                (sample,),
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=({0: torch.export.Dim(ROWS, min=1)},),
                verbose=False,
            )
    except Exception as error:  # noqa: BLE001 - the exporter raises whatever it likes
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"torch cannot write {model.card.model} as ONNX: {reason}") from None
    finally:
        quiet.setLevel(level)
    assert program is not None
    return onnx.load_from_string(program.model_proto.SerializeToString())


def _encoded(graph: OnnxGraph, schema: Schema) -> str:
    """Add the nodes from raw columns to the net's input."""
    if schema.inputs != "table":
        return _samples(graph, schema)
    zero, pieces = graph.constant(0.0, np.float64), []
    for feature in schema.features:
        if isinstance(feature, Number):
            kind = "DOUBLE" if _is_far(feature.mean, feature.std) else "FLOAT"
            raw = graph.cast(graph.input(feature.column, kind, [1]), "DOUBLE")
            gone = graph.node("IsNaN", raw)
            centred = graph.node("Sub", raw, graph.constant(feature.mean, np.float64))
            scaled = graph.node("Div", centred, graph.constant(feature.std, np.float64))
            pieces.append(graph.cast(graph.node("Where", gone, zero, scaled), "FLOAT"))
            if feature.indicator:
                pieces.append(graph.cast(gone, "FLOAT"))
        elif feature.width:
            pieces.append(_one_hot(graph, feature))
    return graph.node("Concat", *pieces, axis=1)


def _is_far(mean: float, std: float) -> bool:
    """True if a column of this mean and deviation needs float64, because float32 would lose its differences."""
    return abs(mean) > 2**12 * std


def _one_hot(graph: OnnxGraph, feature: Category) -> str:
    if feature.numeric:
        names = [[float(value) for value in feature.values]]
        close = len(np.unique(np.array(names, np.float32))) < feature.width
        raw = graph.input(feature.column, "DOUBLE" if close else "FLOAT", [1])
        values = graph.constant(names, np.float64 if close else np.float32)
        return graph.cast(graph.node("Equal", raw, values), "FLOAT")
    raw = graph.input(feature.column, "STRING", [1])
    hot = graph.node("OneHotEncoder", raw, domain="ai.onnx.ml", cats_strings=list(feature.values), zeros=1)
    return graph.node("Reshape", hot, graph.constant([-1, feature.width], np.int64))


def _samples(graph: OnnxGraph, schema: Schema) -> str:
    shape: list[Any] = list(schema.shape)
    if schema.inputs == "tokens":
        raw = graph.input("x", "INT64", shape)
        known = graph.node("Less", raw, graph.constant(schema.vocabulary, np.int64))
        return graph.cast(graph.node("Where", known, raw, graph.constant(1, np.int64)), "INT32")
    value = graph.cast(graph.input("x", "UINT8" if schema.inputs == "images" else "FLOAT", shape), "FLOAT")
    if schema.inputs == "images":
        value = graph.node("Div", value, graph.constant(255.0, np.float32))
    for kind, values in (("Sub", schema.mean), ("Div", schema.std)) if schema.mean else ():
        channels = np.array(values, np.float32).reshape(1, -1, *(1,) * (len(shape) - 1))
        value = graph.node(kind, value, graph.constant(channels, np.float32))
    return value


def _answers(graph: OnnxGraph, card: ModelCard, outputs: str) -> None:
    """Add the nodes from the net's outputs to predictions."""
    schema, count = card.schema, card.outputs
    if schema.task == "classification":
        graph.node("Softmax", outputs, axis=1, name="probabilities")
        best = graph.node("ArgMax", outputs, axis=1, keepdims=0)
        if card.threshold is not None:
            yes = graph.node("Gather", "probabilities", graph.constant(card.positive, np.int64), axis=1)
            least = graph.constant(card.threshold, np.float32)
            places = (graph.constant(place, np.int64) for place in (card.positive, 1 - card.positive))
            best = graph.node("Where", graph.node("GreaterOrEqual", yes, least), *places)
        named = schema.speak(np.arange(len(schema.classes)))
        kind = {"i": "INT64", "f": "DOUBLE"}.get(named.dtype.kind, "STRING")
        graph.node("Gather", graph.constant(named), best, axis=0, name="prediction")
        graph.output("prediction", kind, [])
        graph.output("probabilities", "FLOAT", [count])
        return
    if schema.task == "multilabel":
        yes = graph.node("Greater", outputs, graph.constant(0.0, np.float32))
        graph.cast(yes, "FLOAT", "prediction")
    elif any(map(_is_far, schema.center, schema.spread)):
        scaled = graph.node("Mul", graph.cast(outputs, "DOUBLE"), graph.constant(schema.spread, np.float64))
        graph.node("Add", scaled, graph.constant(schema.center, np.float64), name="prediction")
        graph.output("prediction", "DOUBLE", [count])
        return
    else:
        scaled = graph.node("Mul", outputs, graph.constant(schema.spread or (1.0,), np.float32))
        graph.node("Add", scaled, graph.constant(schema.center or (0.0,), np.float32), name="prediction")
    graph.output("prediction", "FLOAT", [count])
