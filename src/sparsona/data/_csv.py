"""A csv file as a table: a header line, then a line a row, separated by commas, in UTF-8."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from sparsona.data.schema.cells import number, numbers_or_texts
from sparsona.data.schema.table import Table
from sparsona.errors import DataError
from sparsona.files import check_regular


def read_csv(path: Path, owner: str) -> Table:
    """The table in a file; what makes it none is named with its line.

    A column is numbers where every cell is one or is missing (empty, NA, NaN, ?), else texts.
    """
    try:
        check_regular(path)
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, row) for row in reader if row]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; make the file readable") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a csv file in UTF-8 (byte {error.start}); save it as one") from error
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num} is not csv ({error}); correct the line") from error
    if not lines:
        raise DataError(f"{path} is empty; give a header line and one line a row")
    header = _header(path, lines[0][1])
    if len(lines) < 2:
        raise DataError(f"{path} has a header and no rows; give one line a row, or leave the file out")
    for line, row in lines[1:]:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} cells for {len(header)} columns; correct the line")
    cells = zip(*(row for _, row in lines[1:]), strict=True)
    columns = {name: numbers_or_texts(column) for name, column in zip(header, cells, strict=True)}
    return Table(owner, str(path), columns, lines=np.array([line for line, _ in lines[1:]], np.int64))


def _header(path: Path, first: list[str]) -> list[str]:
    header = [cell.strip() for cell in first]
    if len(header) < 2:
        for separator, called in ((";", "semicolons"), ("\t", "tabs")):
            if separator in header[0]:
                raise DataError(f"{path}, line 1 is separated by {called}; separate the columns by commas")
        raise DataError(f"{path} has only one column; separate at least one feature and the target by commas")
    for cell in header:
        found = number(cell) if cell else None
        if found is not None and found == found:
            raise DataError(f"{path}, line 1: {cell!r} is a number, not a name; write the names of the columns there")
    header = [name or f"Unnamed: {k}" for k, name in enumerate(header)]
    for name in header:
        if header.count(name) > 1:
            raise DataError(f"{path}, line 1 has two columns {name!r}; give each a name of its own")
    return header
