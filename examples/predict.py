"""Predict the rows of a csv file with an exported model: python predict.py MODEL.npz ROWS.csv. Needs numpy only."""

import csv
import json
import sys

import numpy as np

model = np.load(sys.argv[1])
card = json.loads(str(model["sparsona"]))
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
    for layer in card["chain"]:
        if layer["kind"] == "linear":
            x = model[layer["name"] + ".weight"] @ x + model[layer["name"] + ".bias"]
        elif layer["kind"] == "relu":
            x = np.maximum(x, 0)
    print(card["schema"]["classes"][x.argmax()])
