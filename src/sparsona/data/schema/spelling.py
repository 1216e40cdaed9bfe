"""Names that differ only in how they are written, as yes and Yes: one thing or two, only their owners know."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal

from sparsona.errors import DataError

Spelling = Literal["alike", "exact"]


def folded(name: str) -> str:
    """A name without what people write one way or the other: capitals, spaces, composed letters.

    >>> folded("Type  A") == folded("type a"), folded("u\\u0308ber") == folded("\\u00fcber")
    (True, True)
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def variants(names: Iterable[str]) -> tuple[str, str] | None:
    """Two of the names that are the same when folded; None where there are no such two.

    >>> variants(["no", "yes", "Yes"]), variants(["a", "b"])
    (('Yes', 'yes'), None)
    """
    seen: dict[str, str] = {}
    for name in sorted(names):
        if (other := seen.setdefault(folded(name), name)) != name:
            return other, name
    return None


def refuse_variants(column: str, names: Mapping[str, Iterable[str]]) -> None:
    """Refuse a column in which owners, which are the keys, have names that differ only in how they are written."""
    told = {owner: set(own) for owner, own in names.items()}
    found = variants(set().union(*told.values()))
    if found is None:
        return
    owners = [next(owner for owner, own in told.items() if name in own) for name in found]
    same_look = len({" ".join(unicodedata.normalize("NFKC", name).split()) for name in found}) == 1
    one, other = (ascii(name).replace("  ", " \\x20") if same_look else repr(name) for name in found)
    raise DataError(
        f"column {column!r}: {one} of {owners[0]} and {other} of {owners[1]} differ only in capitals, spaces or "
        "composed letters; write them alike, or pass --spelling exact where they are two"
    )
