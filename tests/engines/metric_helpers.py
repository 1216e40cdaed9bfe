"""What scikit-learn says of a finished run: its exported models are asked for its test rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from sparsona.data.dataset import Array, Federation
from sparsona.export.predict import predict_file
from sparsona.export.run import export_model

TARGETS = {"classification": ("label",), "regression": ("stay",), "multilabel": ("fever", "cough")}
METRICS = {
    "classification": ["accuracy", "auc", "log-loss", "brier", "average-precision", "f1", "sensitivity"],
    "regression": ["mae", "rmse", "r2", "median-absolute-error"],
    "multilabel": ["accuracy", "auc", "log-loss"],
}


def settings(folder: Path, task: str) -> dict[str, Any]:
    """The experiment with a pool on three wards' tables, which are written into the folder."""
    rng = np.random.default_rng(3)
    tables = folder / "tables"
    tables.mkdir()
    for k, ward in enumerate(("east", "north", "west")):
        age, sex = rng.normal(50 + 5 * k, 9, 90).round(2), rng.choice(["f", "m"], 90)
        score = (age - 55) / 9 + (sex == "m") + rng.normal(0, 0.7, 90)
        columns = {
            "classification": {"label": np.where(score > 0, "ill", "well")},
            "regression": {"stay": (1000 + 70 * score).round(3)},
            "multilabel": {"fever": (score > 0).astype(int), "cough": (age > 52).astype(int)},
        }[task]
        with (tables / f"{ward}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["age", "sex", *columns])
            rows.writerows(zip(age.tolist(), sex.tolist(), *(v.tolist() for v in columns.values()), strict=True))
    return {
        "data": f"folder:{tables}",
        "method": "fedavg",
        "columns": {"categorical": "sex", "target": ",".join(TARGETS[task]), "task": task},
        "clients": 0,
        "partition": "groups",
        "rounds": 2,
        "seed": 5,
        "training": {"lr": 0.1},
        "personal": {"pool": "trees,shared"},
        "evaluation": {"metrics": METRICS[task], "keep": "best"},
    }


def check_scores(scores: Path, models: dict[str, Path], federation: Federation, task: str, tables: Path) -> None:
    """Every score in a folder's `clients.csv` is scikit-learn's on what the client's exported model predicts.

    `models` names each client's model: the run's folder, or on a network the owner's file.
    """
    written = {row["client"]: row for row in csv.DictReader((scores / "clients.csv").open())}
    for client, model in models.items():
        split = federation.splits[client]
        first = min(int(rows.min()) for rows in (split.train, split.validation, split.test))
        lines = (tables / f"{client}.csv").read_text().splitlines()
        test, exported = scores / f"{client} test rows.csv", scores / f"{client}.safetensors"
        test.write_text("\n".join([lines[0], *(lines[1 + int(row) - first] for row in split.test)]) + "\n")
        export_model(model, client if model.is_dir() else "", exported)
        out = io.StringIO()
        predict_file(exported, test, out, exact=task != "regression")
        said, true = (list(csv.DictReader(io.StringIO(text))) for text in (out.getvalue(), test.read_text()))
        for number, name in enumerate(METRICS[task]):
            found = float(written[client]["pre" if number == 0 else f"pre {name}"])
            assert found == pytest.approx(_theirs(name, task, said, true), abs=1e-6, rel=1e-6), (client, name)


def _theirs(name: str, task: str, said: list[dict[str, str]], true: list[dict[str, str]]) -> float:
    if task == "regression":
        y, p = (np.array([float(row[key]) for row in rows]) for rows, key in ((true, "stay"), (said, "prediction")))
        return float(NUMBERS[name](y, p))
    if task == "multilabel":
        each = [
            _binary(
                name,
                np.array([row[label] == "1" for row in true]),
                np.array([float(row[f"p({label})"]) for row in said]),
                np.array([float(row[label]) == 1 for row in said]),
            )
            for label in TARGETS[task]
        ]
        return float(np.mean(each))
    return _binary(
        name,
        np.array([row["label"] == "well" for row in true]),
        np.array([float(row["p(well)"]) for row in said]),
        np.array([row["prediction"] == "well" for row in said]),
    )


NUMBERS: dict[str, Any] = {
    "mae": sk.mean_absolute_error,
    "rmse": sk.root_mean_squared_error,
    "r2": sk.r2_score,
    "median-absolute-error": sk.median_absolute_error,
}


def _binary(name: str, true: Array, p: Array, predicted: Array) -> float:
    of_answers = {"accuracy": sk.accuracy_score, "f1": sk.f1_score, "sensitivity": sk.recall_score}
    of_probabilities = {
        "auc": sk.roc_auc_score,
        "average-precision": sk.average_precision_score,
        "log-loss": sk.log_loss,
        "brier": sk.brier_score_loss,
    }
    return float(of_answers[name](true, predicted) if name in of_answers else of_probabilities[name](true, p))
