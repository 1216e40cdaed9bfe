"""A csv file as a table: a header line, then one line per row, in the form of a :class:`Format`."""

import codecs
import csv
import io
import re
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.schema.columns import TAB, UTF8, Format
from sparsona.data.schema.table import Table, check_width
from sparsona.errors import DataError
from sparsona.files import check_memory, reading
from sparsona.words import counted

SEPARATORS = {",": "commas", ";": "semicolons", TAB: "tabs", "|": "bars"}
COPIES = 5
"""Memory for reading a file (bytes, text, cells), in units of its size."""
NEWLINE, NUL = b"\n", b"\0"
Line = tuple[int, list[str]]
"""The line number at which a row begins, and its cells."""


def read_csv(path: Path, owner: str) -> Table:
    """Return the table of a file, which is opened later, when the file's format is known."""
    return Table(owner, str(path), {}, file=partial(parse_csv, path))


def parse_csv(path: Path, written: Format, settled: bool = False) -> Table:
    """Parse the table in a file into texts; errors name the line.

    `settled`: see :meth:`Table.read`.
    """
    lines = _lines(path, _text(path, written.encoding, settled), written.separator)
    if not lines:
        raise DataError(f"{path} is empty; give a header line and one line per row")
    _refuse_preamble(path, lines)
    check_width(len(lines[0][1]), f"{path}, line {lines[0][0]}")
    header = _header(path, lines[0], written, settled)
    if len(lines) < 2:
        raise DataError(f"{path} has a header and no rows; give one line per row, or leave the file out")
    for line, row in lines[1:]:
        if len(row) != len(header):
            hint = "" if len(row) < len(header) else f" (a cell that holds {written.separator!r} needs quotes)"
            raise DataError(f"{path}, line {line}: {len(row)} cells for {len(header)} columns; correct the line{hint}")
    cells = zip(*(row for _, row in lines[1:]), strict=True)
    columns = {name: _texts(column, f"{path}, column {name!r}") for name, column in zip(header, cells, strict=True)}
    places = np.array([line for line, _ in lines[1:]], np.int64)
    return Table("", str(path), columns, lines=places, raw=frozenset(columns))


def _texts(column: tuple[str, ...], where: str) -> Array:
    """Return the cells of a column; numpy stores each at the length of the longest, so one long cell may not fit."""
    longest = max(map(len, column))
    check_memory(4 * longest * len(column), f"{where} has a cell of {longest} characters", "shorten it")
    return np.array(column, np.str_)


def _text(path: Path, encoding: str, settled: bool) -> str:
    with reading(path):
        check_memory(path.stat().st_size * COPIES, f"{path} is too large", "give it in parts")
        data = path.read_bytes()
    if (found := signature(data)) is not None:
        raise DataError(f"{path} is {found[0]}, though its name says csv; {found[1]}")
    alike = f"save it in {encoding}, as the model's files" if settled else "save all files alike"
    if encoding == UTF8 and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and NUL in data:
        raise DataError(f"{path} is in UTF-16; {'' if settled else 'pass --encoding utf-16, or '}save it in UTF-8")
    if not encoding.startswith(("utf-16", "utf-32")) and NUL in data:
        raise DataError(_nul(path, data, settled))
    if encoding.startswith(("utf-16", "utf-32")) and NUL not in data and data:
        raise DataError(f"{path} is not in {encoding}{'' if settled else ', as --encoding says'}; {alike}")
    if not encoding.startswith("utf-") and not data.isascii():
        with suppress(UnicodeDecodeError):
            data.decode()
            raise DataError(f"{path} is in UTF-8{'' if settled else f', and --encoding says {encoding}'}; {alike}")
    try:
        return data.decode("utf-8-sig" if encoding == UTF8 else encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        where = f"{path}, line {1 + before.count(NEWLINE)}: the byte {data[error.start]:#04x} is not {encoding.upper()}"
        if settled or encoding != UTF8:
            raise DataError(f"{where}; {alike if settled else 'check --encoding'}") from None
        raise DataError(f"{where}; pass --encoding, such as latin-1 or cp1252, or save the file in UTF-8") from None


def _nul(path: Path, data: bytes, settled: bool) -> str:
    """Return the error for NUL bytes, which mean UTF-16 (every second byte) or a damaged file."""
    first = data.index(NUL)
    if data.count(NUL) > len(data) // 4 and data[:4].count(NUL):
        option = "" if settled else f"pass --encoding utf-16-{'be' if data[0] == 0 else 'le'}, or "
        return f"{path} has a NUL in every second byte, as UTF-16 has; {option}save it in UTF-8"
    line = 1 + data[:first].count(NEWLINE)
    where = f"{path}, line {line}: {counted(data.count(NUL), 'NUL byte')}, as in a file that was not written to its end"
    return f"{where}; export it again, or remove them (tr -d '\\000')"


def _lines(path: Path, text: str, separator: str) -> list[Line]:
    """Yield the non-empty rows with their first lines; a quoted cell may span several lines."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    found: list[Line] = []
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return found
        except csv.Error as error:
            if "end of data" in str(error) or "field limit" in str(error):
                raise DataError(
                    f"{path}, line {line}: a quote begins here and does not end; correct the line"
                ) from None
            raise DataError(f"{path}, line {line} is not csv ({error}); correct the line") from None
        if row:
            found.append((line, row))


def _refuse_preamble(path: Path, lines: list[Line]) -> None:
    """Refuse a line that other programs put before the header; a header itself may begin with #, as in #id,age."""
    line, first = lines[0]
    if re.fullmatch("sep=.?", "".join(first).strip().lower()):
        raise DataError(
            f"{path}, line {line}: a line that tells Excel the separator is no header; remove it, and pass --separator "
            "where it is no comma"
        )
    if first[0].lstrip().startswith("#") and (len(first) == 1 or {len(row) for _, row in lines[1:2]} - {len(first)}):
        raise DataError(f"{path}, line {line}: a comment is no header; remove all lines that begin with #")


def _header(path: Path, first: Line, written: Format, settled: bool) -> list[str]:
    line, header = first[0], [cell.strip() for cell in first[1]]
    used = SEPARATORS.get(written.separator, repr(written.separator))
    if len(header) < 2 and (not settled or any(separator in header[0] for separator in SEPARATORS)):
        for separator, called in SEPARATORS.items():
            if separator in header[0]:
                fix = f"write it with {used}" if settled else _separate(separator, used, written)
                raise DataError(f"{path}, line {line} is separated by {called}; {fix}")
        raise DataError(
            f"{path}, line {line} has only one column; separate at least one feature and the target by {used}"
        )
    for cell in header:
        found = written.number(cell) if cell else None
        if found is not None and found == found:
            raise DataError(
                f"{path}, line {line}: {cell!r} is a number, not a name; write the names of the columns there"
            )
    header = [name or f"Unnamed: {k}" for k, name in enumerate(header)]
    for name, times in Counter(header).items():
        if times > 1:
            raise DataError(f"{path}, line {line} has two columns {name!r}; give each a name of its own")
    return header


def _separate(separator: str, used: str, written: Format) -> str:
    """Return the fix for a file with another separator."""
    if written.separator != ",":
        return f"--separator says {used}; write all files alike"
    named = "tab" if separator == TAB else quote(separator)
    return f"pass --separator {named} where all files are, or write it with commas"


AS_CSV = "open it and save it as csv"
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "a gzip file", "unpack it (gunzip)"),
    (b"BZh", "a bzip2 file", "unpack it (bunzip2)"),
    (b"\xfd7zXZ\0", "an xz file", "unpack it (unxz)"),
    (b"(\xb5/\xfd", "a zstd file", "unpack it (unzstd)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"PAR1", "a parquet file", "rename it to end in .parquet"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel or Office file", AS_CSV),
    (b"SQLite format 3\0", "an SQLite database", "export the table as csv"),
    (b"%PDF-", "a PDF document", "ask for the table as csv"),
    (b"\x93NUMPY", "a numpy array", "save it with numpy.savez and a name that ends in .npz"),
    (b"\x89HDF", "an HDF5 file", "export the table as csv"),
)
ZIP = b"PK\x03\x04"
PAGES = (b"<!doctype html", b"<html", b"<?xml")


def signature(data: bytes) -> tuple[str, str] | None:
    """Return the format of the bytes and the fix; None if they may be a text table.

    >>> signature(b"\\x1f\\x8b\\x08..."), signature(b"age,label\\n")
    (('a gzip file', 'unpack it (gunzip)'), None)
    """
    for start, what, fix in SIGNATURES:
        if data.startswith(start):
            return what, fix
    if data.startswith(ZIP):
        if b"xl/" in data or b"[Content_Types].xml" in data:
            return "an Excel workbook (xlsx)", AS_CSV
        if b".npy" in data[:256]:
            return "an npz file", "rename it to end in .npz"
        return "a zip archive", "unpack it"
    head = data[:64].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if head.startswith(PAGES):
        return "a web page or XML", "download the table itself, as csv"
    if head.startswith((b"{", b"[{", b"[[")) and b"\n" not in head.partition(b":")[0]:
        return "JSON", "write it as csv, with a header and one line per row"
    return None
