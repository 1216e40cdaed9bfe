"""Heart disease: 920 patients of four hospitals (Janosi, Steinbrunn, Pfisterer, Detrano, 1989).

Thirteen columns: age, sex, cp, trestbps, chol, fbs, restecg, thalach, exang, oldpeak, slope, ca, thal.
Unknown values (``?``) stay missing, as NaN. Everything else stays as published: cholesterol is 0 for all of
Switzerland and for 49 patients of the VA, which surely means unknown, too.
"""

import numpy as np

from sparsona.data._source import File, source
from sparsona.data._store import Store
from sparsona.data.dataset import Array
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.table import Table, Tables

NAMES = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
)  # fmt: skip
COLUMNS = len(NAMES)
HOSPITALS = {
    "cleveland": ("a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8", 18461, 303),
    "hungarian": ("d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796", 10263, 294),
    "switzerland": ("834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314", 4109, 123),
    "va": ("e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f", 6737, 200),
}
"""Checksum, bytes and patients of each hospital's file."""


def _file(hospital: str) -> File:
    name = f"processed.{hospital}.data"
    sha256, size, _ = HOSPITALS[hospital]
    url = f"https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/{name}"
    return File(name, (url,), sha256=sha256, size=size)


@source(
    about="920 patients, 13 columns with missing values, 2 classes; 4 natural groups (hospitals)",
    licence="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/45/heart+disease",
    files=tuple(_file(hospital) for hospital in HOSPITALS),
)
def load(store: Store) -> Tables:
    """The target is whether a vessel is narrowed at all (the published 1 to 4 are one class)."""
    tables = tuple(_table(store, hospital) for hospital in HOSPITALS)
    return Tables("heart-disease", tables, owned=True, model="logistic", columns=Columns(target=("disease",)))


def _table(store: Store, hospital: str) -> Table:
    values = _read(store, hospital)
    columns = {name: values[:, k] for k, name in enumerate(NAMES)}
    disease = np.where(values[:, COLUMNS] > 0, "ill", "healthy")
    return Table(hospital, f"processed.{hospital}.data", columns | {"disease": disease})


def _read(store: Store, hospital: str) -> Array:
    path = store.need(f"processed.{hospital}.data")
    patients = HOSPITALS[hospital][2]
    text = store.read(path).decode("latin-1").replace("?", "nan")
    try:
        rows = [[float(cell) for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise store.damaged(path, str(error)) from error
    if len(rows) != patients or any(len(row) != COLUMNS + 1 for row in rows):
        raise store.damaged(path, f"not {patients} lines of {COLUMNS + 1} values")
    table = np.array(rows)
    if np.isnan(table[:, COLUMNS]).any():
        raise store.damaged(path, "a diagnosis is missing")
    return table
