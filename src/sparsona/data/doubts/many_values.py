"""A category with hardly more rows than values, such as a zip code; and a zip code that is learnt as a number."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from sparsona.data.doubts import DOUBTS, Doubt, Sites
from sparsona.data.schema.columns import as_option

MANY, ROWS = 30, 10
"""Values from which on there are many, and the rows per value that are enough to learn from."""
POSTAL = frozenset(("zip", "zipcode", "postcode", "postal", "plz", "cep"))


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for categories whose values have few rows each."""
    rows = len(sites.used)
    for name, values in sites.rows.categories.items():
        held = values[sites.used]
        count = len(np.unique(held[held != ""]))
        if count >= MANY and rows < ROWS * count:
            yield Doubt(
                sites.called(list(sites.clients)),
                name,
                rows,
                f"{count} categories, about {rows / count:.1g} rows each",
                f"they become {count} inputs that are learnt by heart, and their names are sent to the server",
                f"pass --drop {as_option(name)}, or write larger groups into the file (two digits of a zip code)",
            )
    for name in sites.rows.number_names:
        if POSTAL & set(re.findall("[a-z]+", name.lower())):
            yield Doubt(
                sites.called(list(sites.clients)),
                name,
                rows,
                "a zip code is learnt as a number",
                "a larger one means nothing",
                f"pass --drop {as_option(name)}, or --categorical {as_option(name)} where each has many rows",
            )
