"""Data sets of the UCI repository: digits, covtype and heart-disease.

Digits: 1,797 handwritten digits of 8x8 pixels, part of scikit-learn. Nothing to download; the default.

Covertype: the forest on 581,012 patches of 30x30 m in Colorado (Blackard and Dean, 1999). The four wilderness areas are
natural groups. Ten columns are measurements, the other 44 are 0 or 1 (area and soil).

Heart disease: 920 patients of four hospitals (Janosi, Steinbrunn, Pfisterer, Detrano, 1989). Unknown values (``?``)
stay missing, as NaN. Everything else stays as published: cholesterol is 0 for all of Switzerland and for 49 patients of
the VA, which surely means unknown, too.
"""

import warnings

import numpy as np

from sparsona.data._store import File, Store, source
from sparsona.data.dataset import Array, Dataset
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.table import Table, Tables


@source(
    "digits",
    about="1,797 handwritten digits, 8x8 pixels, 10 classes; comes with scikit-learn",
    licence="CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits)",
    homepage="https://archive.ics.uci.edu/dataset/80",
)
def digits(store: Store) -> Dataset:
    """The pixels' 0..16 become 0..255, as all images here are bytes."""
    from sklearn.datasets import load_digits  # slow to import, and only this data set needs it

    given = load_digits()
    return Dataset(
        name="digits",
        inputs=np.rint(given.images * (255 / 16)).astype(np.uint8)[:, None],
        targets=given.target.astype(np.int64),
        classes=10,
        mean=(0.3053,),
        std=(0.3759,),
        class_names=tuple("0123456789"),
        model="mlp",
    )


COVTYPE, ROWS, NUMERIC, AREAS, FEATURES = "covtype.data.gz", 581_012, 10, 4, 54
# Over all rows; the columns of 0 and 1 stay as they are.
MEANS = (2959.3653, 155.6568, 14.1037, 269.4282, 46.4189, 2350.1466, 212.146, 223.3187, 142.5283, 1980.2912)
STDS = (279.9845, 111.9136, 7.4882, 212.5492, 58.2952, 1559.2535, 26.7699, 19.7687, 38.2745, 1324.1941)


@source(
    "covtype",
    about="581,012 patches of forest, 54 columns, 7 classes; 4 natural groups (wilderness areas)",
    licence="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/31/covertype",
    files=(
        File(
            COVTYPE,
            (
                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
                "https://ndownloader.figshare.com/files/5976039",
            ),
            sha256="614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            size=11240707,
        ),
    ),
)
def covtype(store: Store) -> Dataset:
    """All values are whole numbers, so the text is read as one long list of them, in a second."""
    path = store.need(COVTYPE)
    text = store.read(path).strip()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's way to say that it met something else
        try:
            values = np.fromstring(text.replace(b"\n", b","), dtype=np.int32, sep=",")
        except (DeprecationWarning, ValueError) as error:
            raise store.damaged(path, "a value is not a whole number") from error
    if values.size != ROWS * (FEATURES + 1) or text.count(b"\n") != ROWS - 1:
        raise store.damaged(path, f"not {ROWS} lines of {FEATURES + 1} values")
    table = values.reshape(ROWS, FEATURES + 1)
    area = table[:, NUMERIC : NUMERIC + AREAS]
    if not 1 <= table[:, -1].min() <= table[:, -1].max() <= 7 or (area.sum(axis=1) != 1).any():
        raise store.damaged(path, "a class is not 1 to 7, or a row is not in one wilderness area")
    return Dataset(
        name="covtype",
        inputs=table[:, :FEATURES].astype(np.float32),
        targets=table[:, -1].astype(np.int64) - 1,
        classes=7,
        mean=MEANS + (0.0,) * (FEATURES - NUMERIC),
        std=STDS + (1.0,) * (FEATURES - NUMERIC),
        groups=area.argmax(axis=1).astype(np.int64),
        group_names=("rawah", "neota", "comanche-peak", "cache-la-poudre"),
        class_names=(
            "spruce/fir",
            "lodgepole pine",
            "ponderosa pine",
            "cottonwood/willow",
            "aspen",
            "douglas fir",
            "krummholz",
        ),
        model="logistic",
    )


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


def _published(hospital: str) -> File:
    name = f"processed.{hospital}.data"
    sha256, size, _ = HOSPITALS[hospital]
    url = f"https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/{name}"
    return File(name, (url,), sha256=sha256, size=size)


@source(
    "heart-disease",
    about="920 patients, 13 columns with missing values, 2 classes; 4 natural groups (hospitals)",
    licence="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/45/heart+disease",
    files=tuple(_published(hospital) for hospital in HOSPITALS),
)
def heart_disease(store: Store) -> Tables:
    """The target is whether a vessel is narrowed at all (the published 1 to 4 are one class)."""
    tables = []
    for hospital in HOSPITALS:
        values = _patients(store, hospital)
        columns = {name: values[:, k] for k, name in enumerate(NAMES)}
        columns["disease"] = np.where(values[:, COLUMNS] > 0, "ill", "healthy")
        tables.append(Table(hospital, f"processed.{hospital}.data", columns))
    declared = Columns(target=("disease",))
    return Tables("heart-disease", tuple(tables), owned=True, model="logistic", columns=declared)


def _patients(store: Store, hospital: str) -> Array:
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
