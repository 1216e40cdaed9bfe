"""An owner's declarations: what the columns of a table mean, and how its files are written."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from shlex import quote
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from sparsona.options import option

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
"""Default codes of a missing value, in capitals or not; --missing replaces them. An empty cell is always missing."""

DOUBTFUL = MISSING - {"", "?"}
"""The codes that may also be names in a column of names."""

UTF8 = "utf-8"
TAB = "\t"


@dataclass(frozen=True)
class Format:
    """The rules by which the cells of an owner's file become values.

    `missing` are the codes of a missing value, in capitals or not; None: :data:`MISSING`, unless they are ambiguous.
    Numbers among them are compared as numbers, so -9 matches -9.0.

    >>> Format(missing=("-9",)).number("-9.0"), Format(missing=("-9",)).number("NA")
    (nan, None)
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = UTF8
    missing: tuple[str, ...] | None = None

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the codes of a missing value in lower case."""
        return MISSING if self.missing is None else frozenset(("", *(word.strip().lower() for word in self.missing)))

    @cached_property
    def codes(self) -> frozenset[float]:
        """Return the numeric codes of a missing value."""
        found = (self._float(word) for word in self.words)
        return frozenset(code for code in found if code is not None and code == code)

    def number(self, text: str) -> float | None:
        """Return the number in a cell; NaN if it is missing, None if it is not a number.

        >>> Format().number(" 2.50"), Format().number("1_000"), Format(decimal=",").number("3,5")
        (2.5, None, 3.5)
        """
        cell = text.strip().lower()
        if cell in self.words:
            return float("nan")
        found = self._float(cell)
        return None if found is None or found != found else float("nan") if found in self.codes else found

    def _float(self, cell: str) -> float | None:
        if "_" in cell:  # Python reads 1_000 as a number, no spreadsheet does
            return None
        if self.decimal != ".":
            if "." in cell:
                return None
            cell = cell.replace(self.decimal, ".")
        try:
            return float(cell)
        except ValueError:
            return None

    def to_json(self) -> dict[str, Any]:
        """Return the format for a model card."""
        return asdict(self) | {"missing": sorted(self.words)}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Format:
        """Invert :meth:`to_json`; undeclared codes become declared ones.

        >>> Format.from_json(Format(";", ",", missing=("-9",)).to_json()).number("-9")
        nan
        """
        return cls(**{**tree, "missing": tuple(tree["missing"])})


def known_separator(given: Any) -> Any:
    """Return one character; a tab may be given by its name."""
    named = {"tab": TAB, r"\t": TAB, "comma": ",", "semicolon": ";"}
    found = named.get(given, given) if isinstance(given, str) else given
    if not isinstance(found, str) or len(found) != 1 or found.isalnum() or found in '"\r\n':
        raise ValueError("one character separates columns, such as ; or tab")
    return found


def known_encoding(given: Any) -> Any:
    """Return the usual name of a text encoding.

    >>> known_encoding("UTF8"), known_encoding("latin-1")
    ('utf-8', 'iso8859-1')
    """
    try:
        found = codecs.lookup(given).name
        "a".encode(found)  # some turn bytes into bytes
    except (LookupError, TypeError, ValueError):
        raise ValueError("encodings are utf-8, utf-16, latin-1, cp1252 and others that Python knows") from None
    return UTF8 if found == "utf-8-sig" else found


TaskName = Literal["auto", "classification", "regression", "multilabel"]
Scaling = Literal["agreed", "own", "none"]
Spelling = Literal["alike", "exact"]


def _listed(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    cells = next(csv.reader([given], skipinitialspace=True), [])
    return tuple(name.strip() for name in cells if name.strip())


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""Names of columns: a list, or one text with commas; a name with a comma stands in quotes."""


def _words(given: Any) -> Any:
    found = _listed(given) if isinstance(given, str) else [given] if isinstance(given, int | float) else given
    return tuple(str(word) if isinstance(word, int | float) else word for word in found) if found is not None else None


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""Words and numbers: a list, or one text with commas."""

InputKind = Literal["auto", "table", "images", "arrays", "tokens"]


@dataclass(frozen=True)
class Columns:
    """The section `columns` of an experiment: what the columns of the owners' tables mean, and how they are written.

    >>> Columns(target=("ill",), categorical=("sex",)).scaling
    'agreed'
    """

    target: Names = option((), "column to predict, several for multilabel (not given: label, target, class or y)")
    task: TaskName = option("auto", "classification, regression or multilabel (auto: by the target's values)")
    classes: Words = option((), "names of all classes (not given: those in the training rows)")
    features: Names = option((), "columns to learn from (not given: all others)")
    drop: Names = option((), "columns to leave out (not given: none)")
    categorical: Names = option((), "columns whose values are names, also if written as numbers (not given: text)")
    bounds: Words = option(
        (), "ranges of numbers and names of categories, as age=0:120 and sex=f/m (not given: those of the rows)"
    )
    client: str = option("", "column with the client's name, in one file of all clients (not given: a file per client)")
    scaling: Scaling = option(
        "agreed", "scale by the moments of all training rows (agreed), of the client's own (own), or not at all (none)"
    )
    inputs: InputKind = option(
        "auto", "content of arrays: table, images, arrays or tokens (auto: by axes and type; tokens must be given)"
    )
    spelling: Spelling = option(
        "alike", "refuse names that differ only in capitals, spaces or composed letters (alike), or keep them (exact)"
    )
    missing: Words | None = option(
        None, "words and numbers that mean a missing value (not given: NA, N/A, NaN, null, none and ?)"
    )
    separator: Annotated[str, BeforeValidator(known_separator)] = option(
        ",", "character that separates the columns of a csv file, or tab"
    )
    decimal: Literal[".", ","] = option(".", "decimal sign of a csv file")
    encoding: Annotated[str, BeforeValidator(known_encoding)] = option("utf-8", "encoding of a csv file")

    @property
    def format(self) -> Format:
        """Return the format of the owners' files."""
        return Format(
            known_separator(self.separator), self.decimal, known_encoding(self.encoding), _words(self.missing)
        )


TARGETS = ("label", "target", "class", "y")
"""Names of the default target column, in capitals or not."""


def as_option(name: str) -> str:
    """Return the name of a column as a command-line option takes it.

    >>> as_option("age"), as_option("Unnamed: 0"), as_option("a,b")
    ('age', "'Unnamed: 0'", '\\'"a,b"\\'')
    """
    return as_option_list([name])


def as_option_list(names: Iterable[str]) -> str:
    """Return several names as a command-line option takes them.

    >>> as_option_list(["age", "a,b"]), as_option_list(["?", "-"])
    ('\\'age,"a,b"\\'', "'?,-'")
    """
    return quote(",".join('"' + n.replace('"', '""') + '"' if "," in n or n.startswith('"') else n for n in names))


def in_capitals(name: str, known: Iterable[str]) -> str:
    """Return a hint about a column that differs only in capitals; empty if there is none.

    >>> in_capitals("num", ["age", "NUM"])
    "; its column 'NUM' differs in capitals: write the names alike"
    """
    others = [other for other in known if other.lower() == name.lower() and other != name]
    return f"; its column {others[0]!r} differs in capitals: write the names alike" if others else ""
