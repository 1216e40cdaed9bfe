"""An owner's declarations about the columns of a table; the rest is inferred, or refused if it is ambiguous."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from sparsona.data.schema.format import Format, known_encoding, known_separator
from sparsona.data.schema.spelling import Spelling
from sparsona.options import option

TaskName = Literal["auto", "classification", "regression", "multilabel"]
Scaling = Literal["agreed", "own", "none"]


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
