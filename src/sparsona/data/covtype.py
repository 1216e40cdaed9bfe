"""Covertype: the forest on 581,012 patches of 30x30 m in Colorado (Blackard and Dean, 1999).

The four wilderness areas are natural groups. Ten columns are measurements, the other 44 are 0 or 1 (area and
soil).
"""

import warnings

import numpy as np

from sparsona.data._source import File, source
from sparsona.data._store import Store
from sparsona.data.dataset import Dataset

NAME, ROWS, NUMERIC, AREAS, FEATURES = "covtype.data.gz", 581_012, 10, 4, 54
# Over all rows; the columns of 0 and 1 stay as they are.
MEANS = (2959.3653, 155.6568, 14.1037, 269.4282, 46.4189, 2350.1466, 212.146, 223.3187, 142.5283, 1980.2912)
STDS = (279.9845, 111.9136, 7.4882, 212.5492, 58.2952, 1559.2535, 26.7699, 19.7687, 38.2745, 1324.1941)


@source(
    about="581,012 patches of forest, 54 columns, 7 classes; 4 natural groups (wilderness areas)",
    licence="CC BY 4.0",
    homepage="https://archive.ics.uci.edu/dataset/31/covertype",
    files=(
        File(
            NAME,
            (
                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
                "https://ndownloader.figshare.com/files/5976039",
            ),
            sha256="614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            size=11240707,
        ),
    ),
)
def load(store: Store) -> Dataset:
    """All values are whole numbers, so the text is read as one long list of them, in a second."""
    path = store.need(NAME)
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
