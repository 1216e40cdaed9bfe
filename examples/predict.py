"""Predict the rows of a csv file with numpy only: python predict.py MODEL.npz ROWS.csv [--probabilities]."""

import csv
import json
import sys

import numpy as np

model = np.load(sys.argv[1])
card = json.loads(str(model["sparsona"]))
task, classes = card["schema"]["task"], card["schema"]["classes"]
usual = {"separator": ",", "decimal": ".", "encoding": "utf-8", "missing": card["missing"]}
written = card["schema"].get("format", usual)


def number(cell):
    try:
        return float(cell.replace(written["decimal"], "."))
    except ValueError:
        return None


codes = {number(word) for word in written["missing"]} - {None}


def value(cell, made):
    gone = cell.strip().lower() in written["missing"] or number(cell) in codes
    if gone or made["kind"] == "missing":
        return float(gone and made["kind"] == "missing")
    if made["kind"] == "equals":
        return float((cell.strip() if isinstance(made["value"], str) else number(cell)) == made["value"])
    if number(cell) is None:
        sys.exit(f"{place}, column {made['column']!r}: {cell!r} is not a number")
    return (number(cell) - made["mean"]) / made["std"]


def net(x, name):
    for layer in card["chain"]:
        if layer["kind"] == "linear":
            x = model[name + layer["name"] + ".weight"] @ x + model[name + layer["name"] + ".bias"]
        elif layer["kind"] == "relu":
            x = np.maximum(x, 0)
    return x


def trees(x, name, rows):
    feature, threshold, left, right = (model[name + key] for key in ("feature", "threshold", "left", "right"))
    scores, node = model[name + "start"].copy(), model[name + "roots"]
    while (left[node] != node).any():  # a leaf leads to itself
        node = np.where(np.float32(x)[feature[node]] <= threshold[node], left[node], right[node])
    np.add.at(scores, model[name + "outputs"], model[name + "value"][node])
    if task == "regression":
        return scores
    share = (shares(scores) * rows + 1 / (2 if task == "multilabel" else len(scores))) / (rows + 1)
    return np.log(share) if task == "classification" else np.log(share / (1 - share))


def shares(outputs):
    if task == "regression":
        return outputs
    if task == "multilabel":
        return 1 / (1 + np.exp(-outputs))
    exp = np.exp(outputs - outputs.max())
    return exp / exp.sum()


def answer(x):
    """What the model says of a row: probabilities, or numbers in the target's units."""
    total = 0.0
    for one in card.get("experts", [{"kind": "net", "name": "", "share": 1}]):
        if one["kind"] == "net":
            outputs = net(x, one["name"])
        elif one["kind"] == "linear":
            outputs = model[one["name"] + "weight"] @ x + model[one["name"] + "bias"]
        else:
            outputs = trees(x, one["name"], one["rows"])
        total = total + one["share"] * shares(outputs)
    if task == "regression" and card["schema"]["center"]:
        total = total * np.array(card["schema"]["spread"]) + np.array(card["schema"]["center"])
    return total


names = {made["column"] for made in card["inputs"] if made["kind"] == "equals"}
encoding = "utf-8-sig" if written["encoding"] == "utf-8" else written["encoding"]
with open(sys.argv[2], newline="", encoding=encoding) as file:
    reader = csv.DictReader(file, delimiter=written["separator"])
    rows = [(reader.line_num, {column.strip(): cell for column, cell in row.items()}) for row in reader]
for line, row in rows:
    place = f"{sys.argv[2]}, line {line}"
    x = np.array([value(row[made["column"]], made) for made in card["inputs"]])
    for name in sorted(names):
        unseen = not any(x[k] for k, made in enumerate(card["inputs"]) if made["column"] == name)
        if unseen and not value(row[name], {"kind": "missing"}):
            problem = f"column {name!r}: {row[name].strip()!r} is in no training row"
            print(f"{place}, {problem}; it is predicted as if it were missing", file=sys.stderr)
    found = answer(x)
    best = int(found.argmax())
    if card.get("threshold") is not None:
        best = card["positive"] if found[card["positive"]] >= card["threshold"] else 1 - card["positive"]
    told = [classes[best]] if classes else (found > 0.5).astype(int) if task == "multilabel" else found
    if "--probabilities" in sys.argv and task != "regression":
        told = [*told, *found.round(6)]
    print(",".join(map(str, told)))
