"""Digits: 1,797 real handwritten digits of 8x8 pixels, part of scikit-learn. Nothing to download; the
default.
"""

import numpy as np

from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.dataset import Dataset


@source(
    about="1,797 handwritten digits, 8x8 pixels, 10 classes; comes with scikit-learn",
    licence="CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits)",
    homepage="https://archive.ics.uci.edu/dataset/80",
)
def load(store: Store) -> Dataset:
    """The pixels' 0..16 become 0..255, as all images here are bytes."""
    from sklearn.datasets import load_digits  # slow to import, and only this data set needs it

    digits = load_digits()
    return Dataset(
        name="digits",
        inputs=np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None],
        targets=digits.target.astype(np.int64),
        classes=10,
        mean=(0.3053,),
        std=(0.3759,),
        class_names=tuple("0123456789"),
        model="mlp",
    )
