"""Names that differ only in spelling, as yes and Yes; only their owners know if they mean the same."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal

from sparsona.errors import DataError

Spelling = Literal["alike", "exact"]


def folded(name: str) -> str:
    """Return a name without differences of spelling: capitals, spaces, composed letters.

    >>> folded("Type  A") == folded("type a"), folded("u\\u0308ber") == folded("\\u00fcber")
    (True, True)
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def variants(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that are the same when folded; None if there are none.

    >>> variants(["no", "yes", "Yes"]), variants(["a", "b"])
    (('Yes', 'yes'), None)
    """
    seen: dict[str, str] = {}
    for name in sorted(names):
        if (other := seen.setdefault(folded(name), name)) != name:
            return other, name
    return None


def refuse_variants(column: str, names: Mapping[str, Iterable[str]]) -> None:
    """Refuse a column in which names differ only in spelling; the keys name the owners."""
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
