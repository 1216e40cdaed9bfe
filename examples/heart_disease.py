"""Heart disease in four hospitals: raw files, a model a hospital, a report, and a prediction without this package.

    python examples/heart_disease.py            # data by `sparsona data get heart-disease`
    python examples/heart_disease.py --data FOLDER --out FOLDER

The hospitals' files are those of the UCI repository, one a hospital, without a header. No row leaves its hospital: what
they share are the messages of the exchange before round 1 and of the training.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

import sparsona
from sparsona.data import describe
from sparsona.export.run import export_model
from sparsona.prepare import prepare

HERE = Path(__file__).parent
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = [
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
]  # fmt: skip
CATEGORICAL = "cp,restecg,slope,thal"
METHODS = ("local", "fedavg", "fedavg-ft")
SETTINGS = {"target": "disease", "categorical": CATEGORICAL, "model": "logistic", "rounds": 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=describe("heart-disease").folder, help="folder of the raw files")
    parser.add_argument("--out", type=Path, default=Path("runs/heart-disease"), help="where all that is made goes")
    given = parser.parse_args()
    if not (given.data / f"processed.{HOSPITALS[0]}.data").exists():
        sys.exit(f"{given.data} has no heart disease data: sparsona data get heart-disease, or give --data FOLDER")
    print(report(given.data, given.out))


def report(raw: Path, out: Path) -> str:
    """Everything from the raw files on; returns the report, which is also written to report.md."""
    clients = out / "hospitals"
    for hospital in HOSPITALS:
        tidy(raw / f"processed.{hospital}.data", clients / f"{hospital}.csv")
    data = f"folder:{clients}"
    lines = ["# Heart disease in four hospitals", "", "## What was understood", ""]
    columns = {key: SETTINGS[key] for key in ("target", "categorical")}
    understood = prepare({"method": "local", "data": data, "columns": columns}).understood()
    lines += ["| | understood | decided |", "|---|---|---|", *(f"| {' | '.join(line)} |" for line in understood)]
    lines += ["", "## Accuracy of the personal models by hospital, with 95 % intervals", ""]
    lines += [f"| method | {' | '.join(HOSPITALS)} | bytes |", "|---|" + "---|" * (len(HOSPITALS) + 1)]
    for method in METHODS:
        done = sparsona.run(method, data=data, out=out / method, **SETTINGS)
        scores = [one.scores["pre"] for one in done.clients]
        cells = [f"{s.value:.2f} ({s.low:.2f} to {s.high:.2f})" for s in scores]
        sent = done.summary["bytes"]
        lines.append(f"| {method} | {' | '.join(cells)} | {sent['up'] + sent['down']} |")
    lines += ["", "## A patient, predicted by each hospital's model", ""]
    patient = out / "patient.csv"
    with patient.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, ["63", "1", "4", "140", "", "0", "2", "108", "1", "2.5", "2", "", "7"]])
    for hospital in HOSPITALS:
        model = out / "models" / f"{hospital}.npz"
        export_model(out / METHODS[-1], hospital, model)
        command = [sys.executable, HERE / "predict.py", model, patient]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        lines.append(f"- {hospital}: {answer}")
    text = "\n".join(lines) + "\n"
    (out / "report.md").write_text(text, encoding="utf-8")
    return text


def tidy(raw: Path, to: Path) -> None:
    """A hospital's raw file as csv with a header; the diagnosis 0 to 4 becomes no or yes."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with raw.open(encoding="latin-1") as source, to.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*COLUMNS, "disease"])
        for line in source:
            if line.strip():
                *values, diagnosis = line.strip().split(",")
                out.writerow([*values, "yes" if float(diagnosis) > 0 else "no"])


if __name__ == "__main__":
    main()
