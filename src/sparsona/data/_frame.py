"""A pandas DataFrame as a table. pandas is not imported here: the caller has imported it."""

from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.schema.table import Table
from sparsona.errors import DataError


def is_frame(given: Any) -> bool:
    """True for a pandas DataFrame, found out without importing pandas."""
    return type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns")


def from_frame(frame: Any, owner: str, where: str) -> Table:
    """Return the columns of a DataFrame without its index; the type category is categorical."""
    if not len(frame):
        raise DataError(f"{where} has no rows; give at least one, or leave it out")
    called = [str(name) for name in frame.columns]
    for name in called:
        if called.count(name) > 1:
            raise DataError(f"{where} has two columns {name!r}; give each a name of its own")
    columns: dict[str, Array] = {}
    categories = set()
    for k, name in enumerate(called):
        series = frame.iloc[:, k]
        if str(series.dtype) == "category":
            categories.add(name)
            kind = series.cat.categories.dtype
            gaps = isinstance(kind, np.dtype) and kind.kind in "iu" and series.isna().any()
            series = series.astype(np.float64 if gaps else kind)
        columns[name] = _values(series, f"{where}, column {name!r}")
    raw = frozenset(name for name, values in columns.items() if values.dtype.kind == "U")
    return Table(owner, where, columns, categories=frozenset(categories), raw=raw)


def _values(series: Any, where: str) -> Array:
    kind = getattr(series.dtype, "kind", "O")
    if kind == "M":
        dates: Array = series.to_numpy("datetime64[us]")
        return dates
    if kind in "biuf":
        numbers: Array = series.to_numpy(np.float64, na_value=np.nan) if kind == "b" else series.to_numpy()
        return numbers if numbers.dtype.kind in "iuf" else series.to_numpy(np.float64, na_value=np.nan)
    if kind != "O":
        raise DataError(f"{where} is of type {series.dtype}; give numbers, texts or dates, or pass --drop")
    missing = series.isna().to_numpy()
    return np.array(["" if gone else str(cell) for cell, gone in zip(series.tolist(), missing, strict=True)], np.str_)
