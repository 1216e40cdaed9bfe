"""Predict the rows of a csv file with an exported model: python predict.py MODEL.npz ROWS.csv. Needs numpy only."""

import csv
import json
import sys

import numpy as np

model = np.load(sys.argv[1])
card = json.loads(str(model["sparsona"]))


def value(cell, made):
    gone = cell.strip().lower() in card["missing"]
    if gone or made["kind"] == "missing":
        return float(gone and made["kind"] == "missing")
    if made["kind"] == "equals":
        return float(cell.strip() == made["value"] if isinstance(made["value"], str) else float(cell) == made["value"])
    return (float(cell) - made["mean"]) / made["std"]


with open(sys.argv[2], newline="", encoding="utf-8-sig") as file:
    rows = list(csv.DictReader(file))
for row in rows:
    x = np.array([value(row[made["column"]], made) for made in card["inputs"]])
    for layer in card["chain"]:
        if layer["kind"] == "linear":
            x = model[layer["name"] + ".weight"] @ x + model[layer["name"] + ".bias"]
        elif layer["kind"] == "relu":
            x = np.maximum(x, 0)
    print(card["schema"]["classes"][x.argmax()])
