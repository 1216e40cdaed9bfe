"""What a page draws of one run: its method's findings, its models, and its models' answers for the test rows."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.errors import InputError, RunError
from sparsona.export.files import read_model
from sparsona.export.predict import predictor_in
from sparsona.message import Vector
from sparsona.method import ClientGraph, ClientId, SparsePredictor
from sparsona.metrics import Answers
from sparsona.metrics.kinds import BINS, bins_of
from sparsona.ops.pairwise import Matrix
from sparsona.report.measured import MeasuredRun
from sparsona.runs.answers import read_answers, together
from sparsona.runs.artefacts import load
from sparsona.runs.directory import GREETINGS, RunDirectory

MOST = 100
"""Largest number of clients that are drawn, the first by name."""
NOT_ARTEFACTS = ("summary.json", "about.json", "study.json", GREETINGS)
POINTS = 200
"""Largest number of points per curve."""
MARKS = 400
"""Rows of a regression that are drawn, spread evenly over all."""
CLASSES = 30
"""Largest number of classes for which a confusion matrix is drawn."""


def drawn_findings(run: MeasuredRun) -> dict[str, Any]:
    """Return the drawings of a run: networks and similarities of clients, overlaps of masks, and the tree of gates."""
    graphs: list[dict[str, Any]] = []
    heats: list[dict[str, Any]] = []
    folder = run.path
    names = tuple(sorted(file.stem for file in folder.glob("*.json") if file.name not in NOT_ARTEFACTS))
    try:
        found = load(folder, names)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"a JSON file in {folder} is not what a method leaves ({error}): take it away") from None
    for name, artefact in found.items():
        clients = artefact.clients[:MOST]
        if isinstance(artefact, ClientGraph):
            pairs = zip(artefact.edges, artefact.weights, strict=True)
            edges = [(clients[i], clients[j], weight) for (i, j), weight in pairs if max(i, j) < len(clients)]
            graphs.append({"name": name, "clients": clients, "edges": edges})
        else:
            heats += [_heat(name, stage, clients, rows[:MOST, :MOST]) for stage, rows in artefact.stages.items()]
    directory = RunDirectory(folder)
    files = {client: directory.model_file(client) for client in sorted(run.traffic)} if run.finished else {}
    files = dict([one for one in files.items() if one[1].exists()][:MOST])
    return {"graphs": graphs, "heats": heats, "masks": _overlap(files), "gates": _gate_tree(files)}


def _heat(name: str, part: str, clients: Sequence[ClientId], values: Matrix) -> dict[str, Any]:
    """Return a square matrix of values between clients."""
    rows = [[None if math.isnan(v) else round(float(v), 3) for v in row] for row in values]
    return {"name": name, "part": part, "clients": clients, "values": rows}


def _overlap(files: Mapping[ClientId, Path]) -> dict[str, Any] | None:
    """Return the overlap of the clients' sparse models: weights that both keep, divided by weights that either keeps.

    None if the models are missing, are not single vectors of one size, or keep everything.
    """
    bits: list[Any] = []
    for file in files.values():
        found = read_model(file)
        if "tree" in found.notes or not found.tensors:
            return None
        bits.append(np.concatenate([np.packbits(array.reshape(-1) != 0) for _, array in sorted(found.tensors.items())]))
    if len(bits) < 2 or len({len(row) for row in bits}) > 1:
        return None
    counts = [int(np.bitwise_count(row).sum()) for row in bits]
    if min(counts) > 0.98 * max(counts) and all(np.array_equal(bits[0], row) for row in bits[1:]):
        return None
    overlap = np.eye(len(bits))
    for i, one in enumerate(bits):
        for j in range(i):
            both = int(np.bitwise_count(one & bits[j]).sum())
            overlap[i, j] = overlap[j, i] = both / max(counts[i] + counts[j] - both, 1)
    return _heat("masks", "kept weights", tuple(files), overlap)


def _gate_tree(files: Mapping[ClientId, Path]) -> dict[str, Any] | None:
    """Return Ward's tree of clients by the scales of their gates, each joint as four points; None without gates."""
    from scipy.cluster.hierarchy import dendrogram, linkage

    scales = {client: found for client, file in files.items() if (found := _signature(file)) is not None}
    if len(scales) < 2 or len({len(row) for row in scales.values()}) > 1:
        return None
    links = linkage(np.stack(list(scales.values())).astype(np.float64), "ward")
    tree = dendrogram(links, labels=list(scales), no_plot=True)
    heights = [[float(f"{value:.6g}") for value in joint] for joint in tree["dcoord"]]
    return {"leaves": tree["ivl"], "x": tree["icoord"], "y": heights}


def _signature(path: Path) -> Vector | None:
    """Return the vector by which a file's model is compared with others; None if it has none."""
    try:
        file = read_model(path)
        model = predictor_in(file, path) if "tree" in file.notes else None
    except (InputError, RunError):  # such as a model of a plug-in that is not installed
        return None
    return model.signature() if isinstance(model, SparsePredictor) else None


def drawn_answers(run: MeasuredRun) -> dict[str, Any] | None:
    """Return the drawings of a finished run's answers; None if the run keeps none.

    Classification and labels: the ROC and the precision-recall curve, calibration and the confusion matrix. Each of
    several classes or labels is one yes-or-no question, and all questions together make one curve. Regression:
    predictions beside the truth, for each target separately.
    """
    found = {client: one for client, one in read_answers(run.path).items() if len(one)} if run.finished else {}
    if run.diverged or not found:
        return None
    answers = together(found)
    if answers.task == "regression":
        return {"kind": "regression", "pairs": _pairs(answers)}
    scores, true = _questions(answers)
    out: dict[str, Any] = {"kind": "classes", **curves(scores, true), "calibration": _calibration(answers)}
    if answers.task == "classification" and answers.probabilities.shape[1] <= CLASSES:
        out["confusion"] = confusion(answers).tolist()
    return out


def _questions(answers: Answers) -> tuple[Array, Array]:
    """Return the probabilities of all yes-or-no questions, and whether each answer is yes."""
    if answers.task == "multilabel":
        targets = answers.targets.reshape(answers.probabilities.shape)
        known = ~np.isnan(targets)
        return answers.probabilities[known], targets[known] > 0
    if answers.is_binary:
        return answers.probabilities[:, answers.positive], answers.targets == answers.positive
    classes = answers.probabilities.shape[1]
    return answers.probabilities.ravel(), (answers.targets[:, None] == np.arange(classes)).ravel()


def curves(scores: Array, true: Array) -> dict[str, Any]:
    """Return the points of the ROC and the precision-recall curve; none if only one answer occurs.

    >>> found = curves(np.array([0.9, 0.8, 0.8, 0.1]), np.array([True, True, False, False]))
    >>> found["roc"], found["recall"]
    ([[0.0, 0.0], [0.0, 0.5], [0.5, 1.0], [1.0, 1.0]], [[0.5, 1.0], [1.0, 0.6667], [1.0, 0.5]])
    """
    if true.all() or not true.any():
        return {"roc": [], "recall": [], "share": float(true.mean())}
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # no threshold tells equal scores apart
    hits = np.cumsum(true[order])[ends]
    hit, false = hits / hits[-1], (ends + 1 - hits) / (len(true) - hits[-1])
    roc = np.concatenate([[[0.0, 0.0]], np.stack([false, hit], 1)])
    return {
        "roc": _thinned(roc, POINTS),
        "recall": _thinned(np.stack([hit, hits / (ends + 1)], 1), POINTS),
        "share": float(true.mean()),
    }


def _thinned(points: Array, most: int) -> list[list[float]]:
    """Return at most `most` of the points, the first and the last among them."""
    kept = np.unique(np.linspace(0, len(points) - 1, min(most, len(points))).round().astype(int))
    return [[float(f"{value:.4g}") for value in point] for point in points[kept]]


def _calibration(answers: Answers) -> list[list[float]]:
    """Return a point per bin: the mean probability, the observed share, and the number of rows."""
    parts = list(answers.labels()) if answers.task == "multilabel" else [answers]
    bins, promised, true = (np.concatenate(each) for each in zip(*map(bins_of, parts), strict=True))
    counts = np.bincount(bins, minlength=BINS)
    sums = [np.bincount(bins, values, BINS) for values in (promised, true)]
    points = [[float(total[k] / counts[k]) for total in sums] + [int(counts[k])] for k in np.flatnonzero(counts)]
    return [[round(mean, 4), round(share, 4), rows] for mean, share, rows in points]


def confusion(answers: Answers) -> Array:
    """Return the number of rows by true class and answer. Rows of a class that no model knows are left out.

    >>> said, true = np.array([0, 1, 1, 0]), np.array([0, 0, 1, -1])
    >>> confusion(Answers("classification", said, np.zeros((4, 2)), true)).tolist()
    [[1, 1], [0, 1]]
    """
    classes, known = answers.probabilities.shape[1], answers.targets >= 0
    cells = answers.targets[known].astype(np.int64) * classes + answers.predictions[known].astype(np.int64)
    out: Array = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return out


def _pairs(answers: Answers) -> list[list[list[float]]]:
    """Return pairs of truth and prediction for each target, of rows that are spread evenly over all."""
    said, true = (values.reshape(len(answers), -1) for values in (answers.predictions, answers.targets))
    each = [np.stack([true[:, k], said[:, k]], 1) for k in range(said.shape[1])]
    return [_thinned(points[np.isfinite(points).all(1)], MARKS) for points in each]
