"""Activities of thirty people from their accelerometers: recordings, windows, a model a person, a report.

    python examples/accelerometer.py
    python examples/accelerometer.py --out FOLDER --people 30

The recordings are made here, with a fixed seed: 20 numbers a second on three axes while a person sits, walks, climbs
and runs in turn. Everybody has a step of their own and wears the sensor at an angle of their own. A window of two
seconds starts every second, so neighbours overlap: the last fifth of the time is the test part, and windows that reach
into it are left out of training (``--split time:start:2`` on the command line).
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

import sparsona
from sparsona.export.run import export_model

HERE = Path(__file__).parent
RATE, WINDOW, STEP = 20, 2, 1
"""Samples a second; seconds of a window and between the starts of two."""
ACTIVITIES = {"sit": (0.0, 0.02), "walk": (1.8, 0.30), "climb": (1.4, 0.45), "run": (2.7, 0.90)}
"""Steps a second, and how strong they are."""
TURN, SECONDS = 8, 256
METHODS = ("local", "fedavg", "fedavg-ft")
SETTINGS = {"target": "activity", "split": {"by": f"time:start:{WINDOW}"}, "rounds": 15}
AXES = ("x", "y", "z")
FEATURES = [f"{what}_{axis}" for axis in AXES for what in ("mean", "std", "beat", "jerk")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/accelerometer"), help="where all that is made goes")
    parser.add_argument("--people", type=int, default=30)
    given = parser.parse_args()
    print(report(given.out, given.people))


def report(out: Path, people: int) -> str:
    """Everything from the recordings on; returns the report, which is also written to report.md."""
    names = [f"p{person:02d}" for person in range(people)]
    for person, name in enumerate(names):
        record(person, out / "recordings" / f"{name}.csv")
        cut(out / "recordings" / f"{name}.csv", out / "windows" / f"{name}.csv")
    data = f"folder:{out / 'windows'}"
    lines = [
        f"# Activities of {people} people",
        "",
        "Accuracy of the personal models on the last fifth of everybody's time.",
        "",
    ]
    lines += ["| method | mean | worst person, with 95 % interval | bytes |", "|---|---|---|---|"]
    for method in METHODS:
        done = sparsona.run(method, data=data, out=out / method, **SETTINGS)
        worst = min((one.scores["pre"] for one in done.clients), key=lambda score: score.value)
        mean, sent = done.summary["accuracy"]["pre"]["mean"], done.summary["bytes"]
        cells = f"{mean:.3f} | {worst.value:.2f} ({worst.low:.2f} to {worst.high:.2f})"
        lines.append(f"| {method} | {cells} | {sent['up'] + sent['down']} |")
    model, rows = out / "models" / f"{names[0]}.npz", out / "rows.csv"
    export_model(out / METHODS[-1], names[0], model)
    head, *windows = (out / "windows" / f"{names[0]}.csv").read_text().splitlines()
    rows.write_text("\n".join([head, *windows[::TURN]]) + "\n")
    command = [sys.executable, HERE / "predict.py", model, rows]
    answers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    truth = [line.rpartition(",")[2] for line in windows[::TURN]]
    right = sum(answer == true for answer, true in zip(answers, truth, strict=True))
    lines += ["", f"Without this package, by predict.py: {right} of {len(truth)} windows of {names[0]} are right."]
    text = "\n".join(lines) + "\n"
    (out / "report.md").write_text(text, encoding="utf-8")
    return text


def record(person: int, to: Path) -> None:
    """A person's recording as csv: second, x, y, z, activity."""
    rng = np.random.default_rng([7, person])
    pace, angle = rng.normal(1, 0.12), rng.uniform(-0.6, 0.6, 2)
    order = list(ACTIVITIES)
    to.parent.mkdir(parents=True, exist_ok=True)
    with to.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["second", *AXES, "activity"])
        for sample in range(SECONDS * RATE):
            second = sample / RATE
            activity = order[int(second / TURN) % len(order)]
            beat, strength = ACTIVITIES[activity]
            phase = 2 * np.pi * beat * pace * second
            moved = strength * np.array([0.4 * np.sin(phase / 2), 0.6 * np.cos(phase), np.sin(phase)])
            down = np.array([np.sin(angle[0]), np.sin(angle[1]), np.cos(angle[0]) * np.cos(angle[1])])
            values = down + moved + rng.normal(0, 0.12, 3)
            out.writerow([f"{second:.2f}", *(f"{value:.4f}" for value in values), activity])


def cut(recording: Path, to: Path) -> None:
    """Overlapping windows of a recording as csv: the second of its start, features, the activity of most of it."""
    with recording.open(newline="") as file:
        samples = list(csv.DictReader(file))
    values = np.array([[float(sample[axis]) for axis in AXES] for sample in samples])
    to.parent.mkdir(parents=True, exist_ok=True)
    with to.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["start", *FEATURES, "activity"])
        for start in range(0, len(samples) - WINDOW * RATE + 1, STEP * RATE):
            part = values[start : start + WINDOW * RATE]
            held = [sample["activity"] for sample in samples[start : start + WINDOW * RATE]]
            beats = np.abs(np.fft.rfft(part - part.mean(0), axis=0)).argmax(0) / WINDOW
            jerk = np.abs(np.diff(part, axis=0)).mean(0)
            features = np.stack([part.mean(0), part.std(0), beats, jerk], 1).reshape(-1)
            activity = max(sorted(set(held)), key=held.count)
            out.writerow([start / RATE, *(f"{feature:.5f}" for feature in features), activity])


if __name__ == "__main__":
    main()
