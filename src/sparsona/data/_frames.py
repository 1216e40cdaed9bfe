"""DataFrames and arrow tables as tables: pandas, parquet files, and data sets of Hugging Face.

pandas is not imported here: the caller has imported it. Arrow needs pyarrow, an extra.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data._arrays import LABELS, from_pairs
from sparsona.data.dataset import Array
from sparsona.data.schema.table import Table, check_width
from sparsona.errors import DataError
from sparsona.files import check_memory, reading


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
        columns[name] = _series_values(series, f"{where}, column {name!r}")
    raw = frozenset(name for name, values in columns.items() if values.dtype.kind == "U")
    return Table(owner, where, columns, categories=frozenset(categories), raw=raw)


def _series_values(series: Any, where: str) -> Array:
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


COPIES = 3
"""Memory for reading a table, in units of its size."""
LONGEST_TEXT = 10**6
INDEX = "__index_level_"
"""pandas' name for an index that it stores beside the columns."""


def read_parquet(path: Path, owner: str) -> Table:
    """Read the table in a parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"{path} needs pyarrow: pip install 'sparsona[tables]', or save it as csv") from None
    try:
        with reading(path):
            _check_size(pq.ParquetFile(path).metadata, path)
            table = pq.read_table(path)
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a parquet file, or it is damaged; write it anew") from error
    return from_arrow(table, owner, str(path))


def _check_size(metadata: Any, path: Path) -> None:
    """Refuse a file whose columns, by its own metadata, would not fit into memory.

    Equal values are compressed in the file but not in memory, so each cell counts at least 8 bytes.
    """
    check_width(metadata.num_columns, str(path))
    stored = sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))
    needed = max(stored, 8 * metadata.num_rows * metadata.num_columns) * COPIES
    what = f"{path} has {metadata.num_rows} rows of {metadata.num_columns} columns"
    check_memory(needed, what, "give it in parts")


def _check_texts(column: Any, where: str) -> None:
    """Refuse texts that do not fit into memory: numpy stores each at the length of the longest."""
    import pyarrow.compute as pc

    longest = pc.max(pc.utf8_length(column)).as_py() or 0
    if longest > LONGEST_TEXT:
        raise DataError(f"{where} has a text of {longest} characters, at most {LONGEST_TEXT} are read; pass --drop")
    check_memory(4 * longest * len(column), f"{where} has a text of {longest} characters", "pass --drop")


def from_huggingface(data: Any, owner: str, where: str) -> Table:
    """Return a `datasets.Dataset` as a table, with its names of classes."""
    whole = data.with_format("arrow")[:]
    images = [name for name, feature in data.features.items() if type(feature).__name__ == "Image"]
    lists = [field.name for field in whole.schema if _is_list(field.type)]
    if images or lists:
        return _samples(data, whole, images, lists, owner, where)
    table = from_arrow(whole, owner, where)
    columns, named = dict(table.columns), set()
    for name, feature in data.features.items():
        called = getattr(feature, "names", None)
        if called and name in columns:
            columns[name] = np.array([*called, ""], np.str_)[np.nan_to_num(columns[name], nan=-1).astype(np.int64)]
            named.add(name)
    return replace(table, columns=columns, raw=table.raw - named)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _samples(data: Any, whole: Any, images: list[str], lists: list[str], owner: str, where: str) -> Table:
    """Return images or lists of tokens with their labels, without other columns."""
    label = next((name for name in LABELS if name in data.features), None)
    if label is None:
        raise DataError(f"{where} has no column of labels among {', '.join(data.features)}; call it label")
    labels = whole.column(label).to_numpy()
    called = getattr(data.features[label], "names", None)
    if called:
        labels = np.array(called, np.str_)[labels]
    if lists:
        return from_pairs(({name: whole.column(name).to_pylist() for name in lists}, labels), None, owner, where)
    pictures = [np.asarray(one) for one in data[:][images[0]]]
    if len({picture.shape for picture in pictures}) > 1:
        raise DataError(f"{where}: images differ in size; resize all alike")
    block = np.stack(pictures)
    return from_pairs((np.moveaxis(block, 3, 1) if block.ndim == 4 else block, labels), None, owner, where)


def from_arrow(table: Any, owner: str, where: str) -> Table:
    """Return the columns of an arrow table as numbers, texts or dates; dictionary columns are categorical."""
    import pyarrow as pa

    columns: dict[str, Array] = {}
    categories, raw = set(), set()
    for field in table.schema:
        if field.name.startswith(INDEX):
            continue
        column, kind = table.column(field.name).combine_chunks(), field.type
        if pa.types.is_dictionary(kind):
            categories.add(field.name)
            column, kind = column.dictionary_decode(), kind.value_type
        columns[field.name] = _values(column, kind, f"{where}, column {field.name!r}")
        if columns[field.name].dtype.kind == "U":
            raw.add(field.name)
    if not columns or not table.num_rows:
        raise DataError(f"{where} has no rows; give at least one, or leave it out")
    return Table(owner, where, columns, categories=frozenset(categories), raw=frozenset(raw))


def _values(column: Any, kind: Any, where: str) -> Array:
    import pyarrow as pa

    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        dates: Array = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False)
        return dates
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        _check_texts(column, where)
        return np.array(["" if cell is None else cell for cell in column.to_pylist()], np.str_)
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataError(f"{where} is of type {kind}; give numbers, texts or dates, or pass --drop")
    if column.null_count:
        column = column.cast(pa.float64(), safe=False)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values
