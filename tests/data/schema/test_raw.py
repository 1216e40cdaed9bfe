"""Raw rows on their way to a model: what it has not seen is told."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from sparsona.data.folder import read_table
from sparsona.data.schema.raw import encode_raw
from sparsona.data.schema.schema import Category, Number, Schema
from sparsona.errors import DataError

SCHEMA = Schema(
    "classification",
    ("y",),
    features=(Number("a"), Category("sex", ("f", "m")), Category("cp", ("1", "2", "10"), numeric=True)),
)


def test_a_category_that_was_never_seen_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "new.csv").write_text("a,sex,cp\n1,m,2.0\n2,x,?\n3,y,9\n")
    table = read_table(tmp_path / "new.csv", "")
    with caplog.at_level(logging.WARNING):
        found = encode_raw(SCHEMA, table)
        encode_raw(SCHEMA, table)
    assert found[:, 1:].tolist() == [[0, 1, 0, 1, 0], [0] * 5, [0] * 5]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/new.csv, line 3, column 'sex': 'x' is in no training row; it is predicted as if it were missing, "
        "as are 1 more rows",
        f"{tmp_path}/new.csv, line 4, column 'cp': '9' is in no training row; it is predicted as if it were missing",
    ]


def test_a_text_among_numbers_leaves_the_others_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    found = encode_raw(SCHEMA, {"a": [1, 2], "sex": ["f", "f"], "cp": ["10.0", "x"]})
    assert found[:, 3:].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert "the rows, row 1, column 'cp': 'x' is in no training row" in caplog.text


def test_known_rows_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    encode_raw(SCHEMA, {"a": [1], "sex": [None], "cp": [2]})
    assert caplog.text == ""


def test_codes_are_compared_as_texts() -> None:
    wards = Schema("classification", ("y",), features=(Category("ward", ("01", "1")),))
    assert encode_raw(wards, {"ward": ["1", "01"]}).tolist() == [[0, 1], [1, 0]]


TWO = Schema("classification", ("y",), features=(Number("a"), Number("b", 1.0, 2.0)))
IMAGES = Schema("classification", ("y",), inputs="images", shape=(1, 2, 2))
ARRAYS = Schema("classification", ("y",), inputs="arrays", shape=(1, 2))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_tensors_are_taken_without_their_gradient(kind: torch.dtype) -> None:
    given = torch.tensor([[1.0, 5.0], [2.0, 3.0]], dtype=kind, requires_grad=True)
    assert encode_raw(TWO, given).tolist() == [[1, 2], [2, 1]]
    assert encode_raw(TWO, {"a": given[:, 0], "b": given[:, 1]}).tolist() == [[1, 2], [2, 1]]
    assert encode_raw(ARRAYS, given[:, None]).tolist() == [[[1, 5]], [[2, 3]]]


def test_complex_numbers_are_refused() -> None:
    for given in (np.zeros((1, 1, 2), complex), torch.zeros((1, 1, 2), dtype=torch.complex64)):
        with pytest.raises(DataError, match=r"the rows: values of type complex[0-9]* cannot be used; give numbers"):
            encode_raw(ARRAYS, given)


def test_pixels_are_not_rounded() -> None:
    """A model of uint8 would see black where pixels are decimals from 0 to 1."""
    pixels = np.array([[[0, 51], [102, 255]]])
    assert encode_raw(IMAGES, pixels).dtype == np.uint8
    for odd in (pixels / 255, pixels + 1, pixels * np.nan):
        with pytest.raises(DataError, match=r"the rows hold values of .* that are no uint8; the model takes images of"):
            encode_raw(IMAGES, odd)
