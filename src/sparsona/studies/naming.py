"""Names of the folders of a study's runs: short, plain and distinct."""

from collections.abc import Mapping
from hashlib import sha256
from typing import TypeVar

K = TypeVar("K")


def distinct_names(plain: Mapping[K, str]) -> dict[K, str]:
    """Return distinct names: if a plain name is taken, six digits of a hash follow it.

    The first keeps its plain name, so that an extended study finds its old runs.

    >>> distinct_names({"mu=1e-2": "mu-1e-2", "mu=1e+2": "mu-1e-2", "mu=3": "mu-3"})
    {'mu=1e-2': 'mu-1e-2', 'mu=1e+2': 'mu-1e-2-64419e', 'mu=3': 'mu-3'}
    """
    names: dict[K, str] = {}
    taken: set[str] = set()
    for key, name in plain.items():
        names[key] = f"{name}-{sha256(repr(key).encode()).hexdigest()[:6]}" if name in taken else name
        taken.add(name)
    return names
