"""``folder:PATH``: the user's own data in a folder, one file a client, named after it.

``berlin.npz`` holds `x` and `y`, perhaps `x_test` and `y_test`. ``berlin.csv`` has a header; the target is
the column called label, target or y, else the last one; an empty cell (or ``NA`` or ``?``) is a missing
value. Targets are classes where all are whole numbers or where one is a text, and numbers to predict where
all are decimals. The columns of csv files are normalised with their mean and deviation over all clients.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsona.data._own import from_arrays
from sparsona.data._source import source
from sparsona.data._store import Store
from sparsona.data.dataset import Array, Dataset
from sparsona.data.npz import pairs, read_npz
from sparsona.errors import DataError

TARGETS = ("label", "target", "y")
MISSING = ("", "na", "?")


@dataclass(frozen=True)
class Table:
    """A csv file: names of columns, their values, and the targets as they are written."""

    columns: tuple[str, ...]
    target: str
    values: Array
    labels: list[str]


@source(about="your own files, one a client: folder:PATH with .npz (x, y) or .csv", licence="yours")
def load(store: Store, path: Path) -> Dataset:
    path = path.expanduser()
    files = _files(path)
    tables = {file: _table(file) for file in files if file.suffix == ".csv"}
    clients: dict[str, dict[str, tuple[Array, Array]]] = {}
    for file, x, y in _alike(tables):
        clients[file.stem] = {"train": (x, y)}
    for file in files:
        if file.suffix == ".npz":
            train, test = pairs(read_npz(file), file)
            clients[file.stem] = {"train": train} | ({} if test is None else {"test": test})
    in_order = {file.stem: clients[file.stem] for file in files}
    return from_arrays(in_order, name=path.resolve().name, standardise=len(tables) == len(files))


def _files(path: Path) -> list[Path]:
    try:
        files = sorted(f for f in path.iterdir() if f.suffix in (".csv", ".npz") and not f.name.startswith("."))
    except OSError as error:
        raise DataError(f"cannot read the folder {path}: {error.strerror}; check the path behind folder:") from error
    if not files:
        raise DataError(f"there is no .npz and no .csv file in {path}; put one file a client there")
    seen: dict[str, Path] = {}
    for file in files:
        if file.stem in seen:
            raise DataError(f"{seen[file.stem]} and {file.name} name the same client; rename one of them")
        seen[file.stem] = file
    return files


def _table(path: Path) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [(reader.line_num, row) for reader in [csv.reader(file)] for row in reader if row]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; make the file readable") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a csv file in UTF-8 ({error}); save it as one") from error
    if len(rows) < 2:
        raise DataError(f"{path} holds no rows; give a header line and one line a sample")
    header = [cell.strip() for cell in rows[0][1]]
    if len(header) < 2:
        raise DataError(f"{path} has only one column; separate at least one feature and the target by commas")
    if len(set(header)) < len(header):
        double = next(name for name in header if header.count(name) > 1)
        raise DataError(f"{path} has two columns {double!r}; give each a name of its own")
    target = next((name for known in TARGETS for name in header if name.lower() == known), header[-1])
    at = header.index(target)
    values, labels = [], []
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} cells for {len(header)} columns; correct the line")
        if not row[at].strip():
            raise DataError(f"{path}, line {line}: no {target}; fill it in or leave the line out")
        labels.append(row[at].strip())
        values.append([_number(row[k], path, line, header[k]) for k in range(len(header)) if k != at])
    columns = tuple(name for name in header if name != target)
    return Table(columns, target, np.array(values, np.float64), labels)


def _number(cell: str, path: Path, line: int, column: str) -> float:
    try:
        return float(cell) if cell.strip().lower() not in MISSING else float("nan")
    except ValueError:
        fix = "write a number, or leave the cell empty where it is missing"
        raise DataError(f"{path}, line {line}: {column} is {cell!r}; {fix}") from None


def _alike(tables: dict[Path, Table]) -> list[tuple[Path, Array, Array]]:
    """Inputs and targets of each table, columns in the order of the first, targets understood alike."""
    if not tables:
        return []
    first_path, first = next(iter(tables.items()))
    labels = _labels([label for table in tables.values() for label in table.labels])
    result, start = [], 0
    for path, table in tables.items():
        odd = set(table.columns) ^ set(first.columns)
        if table.target != first.target:
            problem = f"{path} has the target {table.target!r}, {first_path.name} has {first.target!r}"
            raise DataError(f"{problem}; give all clients the same columns")
        if odd:
            column = min(odd)
            has, lacks = (path, first_path) if column in table.columns else (first_path, path)
            raise DataError(f"{has} has a column {column!r}, {lacks} has not; give all clients the same columns")
        order = [table.columns.index(column) for column in first.columns]
        end = start + len(table.labels)
        result.append((path, table.values[:, order], labels[start:end]))
        start = end
    return result


def _labels(texts: Sequence[str]) -> Array:
    """Whole numbers, else decimals, else the texts themselves."""
    for kind in (np.int64, np.float64):
        try:
            return np.array(texts).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)
