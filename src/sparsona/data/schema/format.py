"""The format of owners' files: separator, decimal sign, encoding, codes of missing values."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

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
