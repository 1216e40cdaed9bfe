"""How owners' files are written: what separates their cells, the decimal sign, the encoding, what means missing."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
"""What a cell without a value may hold, in capitals or not, unless --missing says it. An empty one has none ever."""

DOUBTFUL = MISSING - {"", "?"}
"""Those of the words that may as well be names, where a column holds names."""

UTF8 = "utf-8"
TAB = "\t"


@dataclass(frozen=True)
class Format:
    """How the cells of an owner's file become values.

    `missing` are the words that mean a missing value, in capitals or not; None: :data:`MISSING`, where they leave no
    doubt. Numbers among them are compared as numbers: -9 is also written -9.0.

    >>> Format(missing=("-9",)).number("-9.0"), Format(missing=("-9",)).number("NA")
    (nan, None)
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = UTF8
    missing: tuple[str, ...] | None = None

    @cached_property
    def words(self) -> frozenset[str]:
        """The cells that mean a missing value, in lower case."""
        return MISSING if self.missing is None else frozenset(("", *(word.strip().lower() for word in self.missing)))

    @cached_property
    def codes(self) -> frozenset[float]:
        """The numbers that mean a missing value."""
        found = (self._float(word) for word in self.words)
        return frozenset(code for code in found if code is not None and code == code)

    def number(self, text: str) -> float | None:
        """The number that a cell holds; NaN where it is missing, None where it is something else.

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
        """For the card of a model."""
        return asdict(self) | {"missing": sorted(self.words)}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Format:
        """The inverse of :meth:`to_json`; words that were not declared are declared then.

        >>> Format.from_json(Format(";", ",", missing=("-9",)).to_json()).number("-9")
        nan
        """
        return cls(**{**tree, "missing": tuple(tree["missing"])})


def known_separator(given: Any) -> Any:
    """One character; a tab may be called by its name."""
    named = {"tab": TAB, r"\t": TAB, "comma": ",", "semicolon": ";"}
    found = named.get(given, given) if isinstance(given, str) else given
    if not isinstance(found, str) or len(found) != 1 or found.isalnum() or found in '"\r\n':
        raise ValueError("one character separates columns, such as ; or tab")
    return found


def known_encoding(given: Any) -> Any:
    """A text encoding by its usual name.

    >>> known_encoding("UTF8"), known_encoding("latin-1")
    ('utf-8', 'iso8859-1')
    """
    try:
        found = codecs.lookup(given).name
        "a".encode(found)  # some turn bytes into bytes
    except (LookupError, TypeError, ValueError):
        raise ValueError("encodings are utf-8, utf-16, latin-1, cp1252 and others that Python knows") from None
    return UTF8 if found == "utf-8-sig" else found
